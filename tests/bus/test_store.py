"""Blobs by their hash, in the node's own JetStream."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hearthnet.bus.store import Store
from hearthnet.core.canonical_json import content_hash
from hearthnet.core.errors import HearthNetError
from hearthnet.nats.client import NatsClient
from hearthnet.protocol.manifest import manifest_of
from hearthnet.trust.keys import Identity
from tests.helpers.mesh import Mesh, start_mesh
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio


@pytest.mark.req("STORE-1")
async def test_a_blob_is_kept_under_its_hash_once(mesh: Mesh) -> None:
    data = os.urandom(300_000)
    async with await mesh.store() as store:
        cid = await store.put_blob(data)
        before = (await store.js.stream_info("OBJ_blobs")).state.messages
        assert await store.put_blob(data) == cid == manifest_of(data).cid
        assert (await store.js.stream_info("OBJ_blobs")).state.messages == before
    mesh.restart_server()
    async with await mesh.store() as store:
        assert await store.blobs.read(cid) == data


@pytest.mark.req("STORE-1")
async def test_what_is_not_there_or_damaged_is_said(mesh: Mesh) -> None:
    async with await mesh.store() as store:
        absent = content_hash(b"never stored")
        with pytest.raises(HearthNetError, match=absent[:23]) as caught:
            await store.blobs.read(absent)
        assert caught.value.code == "not_found"
        cid = content_hash(b"the real content")
        await (await store.js.object_store("blobs")).put(cid, b"something else")
        with pytest.raises(HearthNetError, match=f"{cid[:23]}.* damaged") as damaged:
            await store.blobs.read(cid)
    assert damaged.value.code == "internal_error"


@pytest.mark.req("STORE-2")
async def test_another_members_login_does_not_open_the_store(tmp_path: Path) -> None:
    mesh = await start_mesh(tmp_path, stores=False)
    try:
        with pytest.raises(HearthNetError) as caught:
            await Store.join(mesh.guest, mesh.server.url, "guest")
        assert caught.value.code == "unauthorized"
        with pytest.raises(HearthNetError) as stranger:
            await NatsClient.connect(mesh.server.url, Identity.generate().login(), "stranger")
        assert stranger.value.code == "unauthorized"
    finally:
        mesh.server.stop()


async def test_no_server_is_said_with_its_address(mesh: Mesh) -> None:
    mesh.server.stop()
    with pytest.raises(HearthNetError) as caught:
        await mesh.bus()
    assert caught.value.code == "partition"
    assert mesh.server.url in caught.value.message


@pytest.mark.req("STORE-2")
async def test_a_store_that_was_left_says_so(mesh: Mesh, caplog: pytest.LogCaptureFixture) -> None:
    store = await mesh.store()

    async def refuse() -> None:
        raise HearthNetError("internal_error", "not in the mood")

    store.link.on_restored(refuse)
    mesh.restart_server()
    await wait_for(lambda: "not in the mood" in caplog.text, what="the way back")
    await store.link.connected()
    await store.close()
    for late in (store.link.connected(), store.link.subscribe("mk.post.>", lambda: None)):
        with pytest.raises(HearthNetError, match=r"the connection to the server .* closed") as caught:
            await late
        assert (caught.value.code, caught.value.rule) == ("partition", "connection_lost")
