"""What is said to all by strangers, for another community or not whole; and a log that is no log."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from hearthnet import NodeContext
from hearthnet.bus.bus import Bus
from hearthnet.core import ids, rationed_log
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.config_loader import load_config
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol import frame as frames
from hearthnet.protocol import subjects
from hearthnet.service.hosting.status import Status
from hearthnet.trust.keys import Identity
from tests.helpers.mesh import Mesh
from tests.helpers.probe import POST, QUERY, ProbeService, post, query
from tests.helpers.waiting import DEADLINE_SECONDS, wait_for

pytestmark = pytest.mark.asyncio
TOPIC = "rag.query.v1"


def _frame(bus: Bus, signer: Identity, kind: Any, **changes: Any) -> bytes:
    header = bus.peer.sender.header(kind, ids.new_ulid(), capability=TOPIC)
    return frames.signed(msgspec.structs.replace(header, **changes), b"[", signer)


@pytest.mark.req("ADMIT-8")
async def test_what_strangers_say_to_all_is_dropped(
    mesh: Mesh, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rationed_log, "_LOG_MS", 0)
    stranger = Identity.generate()
    async with mesh.hosting(ProbeService()) as host, await mesh.bus() as bus:
        await bus.call(QUERY, query())
        own, link = bus.peer.identity, bus.peer.link
        find, adv = subjects.find(own.node_id, TOPIC), subjects.announce(own.node_id, parse_capability(QUERY))
        other = subjects.find(stranger.node_id, TOPIC)
        from_stranger = _frame(bus, stranger, "find", sender=stranger.node_id)
        host._announcer._on_find(other, from_stranger, False)
        for place in (find, adv):
            await link.publish(place, b"no frame")
            await link.publish(place, _frame(bus, own, "ack"))
            await link.publish(place, _frame(bus, own, "find", community=stranger.node_id))
            await link.publish(place, _frame(bus, own, "offer"))
        bus._discovery._on_announcement(
            subjects.announce(stranger.node_id, parse_capability(QUERY)), from_stranger, False
        )
        await wait_for(lambda: caplog.text.count("dropped a find: ") == 5, what="the finds to be dropped")
        await wait_for(lambda: caplog.text.count("dropped an announcement: ") == 5, what="the others, too")
        assert (await bus.call(QUERY, query())).output
        assert {view.node for view in await bus.offers()} == {own.node_id}


@pytest.mark.req("ADMIT-10")
async def test_a_log_that_is_no_log_or_away_is_said_to_be(mesh: Mesh) -> None:
    service = ProbeService()
    async with mesh.hosting(service), await mesh.bus() as bus, await mesh.store() as store:
        key = ids.new_ulid()
        await store.js.publish(f"mk.post.{bus.peer.identity.token}.{key}", b"{}")
        with pytest.raises(HearthNetError, match="malformed"):
            await bus.call("market.post@1.0", post(key))
        assert service.events is not None
        assert not await service.events.known(_NoCall(bus.peer.node_id))  # type: ignore[arg-type]
        await service.events._store.close()
        with pytest.raises(HearthNetError) as caught:
            await asyncio.wait_for(service.events.place(), DEADLINE_SECONDS)
    assert caught.value.code == "partition"


class _NoCall:
    """As much of a call as the log asks of one."""

    def __init__(self, principal: str) -> None:
        self.principal = self.owner = principal
        self.idempotency_key = ids.new_ulid()
        self.body = {"input": {"client_id": self.idempotency_key}}

    def allowed(self) -> float:
        """Enough."""
        return 5.0

    def remaining(self) -> float:
        """Time enough."""
        return 10.0


@pytest.mark.req("ADMIT-10")
async def test_a_log_without_room_says_so(mesh: Mesh) -> None:
    """The server may store little."""
    mesh.server.kill()
    text = mesh.server.config.read_text()
    mesh.server.config.write_text(text.replace("sync_interval:", "max_file_store: 64KB\n  sync_interval:"))
    mesh.server = mesh.server.again()
    async with mesh.hosting(ProbeService()), await mesh.bus() as bus:
        codes = ["ok"]
        while codes[-1] != "capacity_exceeded":
            assert len(codes) < 200
            try:
                await bus.call(POST, post(ids.new_ulid()), timeout_seconds=30)
                codes.append("ok")
            except HearthNetError as error:
                codes.append(error.code)
        # The last effect for which there was room may be one whose end is not on record.
        assert set(codes[:-2]) == {"ok"}


@pytest.mark.req("ADMIT-10")
async def test_a_log_that_is_sealed_says_so(mesh: Mesh) -> None:
    """Somebody has closed the market's stream for good."""
    async with mesh.hosting(ProbeService()), await mesh.bus() as bus, await mesh.store() as store:
        config = (await store.js.stream_info("MARKET")).config
        config.sealed = True
        await store.js.update_stream(config)
        with pytest.raises(HearthNetError, match=r"the event log refuses the event: .*sealed") as caught:
            await bus.call(POST, post(ids.new_ulid()), timeout_seconds=30)
    assert caught.value.code == "internal_error"


@pytest.mark.req("SERVICE-1")
async def test_a_service_is_given_its_node(mesh: Mesh, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    bus = await mesh.bus()
    node = NodeContext(mesh.home, load_config(mesh.home), mesh.server.url, "probe", bus, Status(None))
    node.progress("loading", 1, 2)
    assert node.identity.node_id == mesh.identity.node_id
    assert (node.home, node.data) == (mesh.home, mesh.home.service("probe"))
    assert node.data.is_dir()
    store = await node.store()
    assert store is await node.store()
    assert not hasattr(store, "blobs"), "blobs are read with the rights of a call"
    with pytest.raises(HearthNetError, match="use open_blob") as refused:
        await node.blobs()
    assert refused.value.code == "unauthorized"
    await node.close()
    assert "'stage': 'loading'" in caplog.text
