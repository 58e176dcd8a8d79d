"""Many stored messages at once, at a real server with a stream."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from functools import partial

import msgspec
import pytest
import pytest_asyncio

from hearthnet.core.errors import HearthNetError
from hearthnet.nats.batch_client import BatchClient
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for

pytestmark = [pytest.mark.asyncio, pytest.mark.req("SCALE-12")]
READ = "$JS.API.DIRECT.GET.MARKET"
EMPTY = {"Nats-Expected-Last-Subject-Sequence": "0"}


@pytest_asyncio.fixture
async def client(mesh: Mesh) -> AsyncIterator[BatchClient]:
    """A connection to the home's store."""
    joined = await BatchClient.join(mesh.server.url, mesh.identity.store_login(), "test")
    yield joined
    await joined.close()


def _heard(messages: list[bytes], subject: str, data: bytes, absent: bool) -> None:
    messages.append(data)


def texts(count: int) -> list[tuple[str, bytes]]:
    """Messages of several sizes, one with what ends a line of the protocol."""
    return [(f"mk.post.me.{number}", b"%d\r\n" % number * (number + 1)) for number in range(count)]


async def test_a_batch_is_stored_as_a_whole_and_read_back(client: BatchClient) -> None:
    answer = msgspec.json.decode(await client.append(texts(600), EMPTY))
    assert (answer["seq"], answer["count"]) == (600, 600)
    found = await client.read(READ, {"seq": 1, "batch": 1000})
    assert [one.data for one in found.messages] == [data for _, data in texts(600)]
    assert found.status == 204
    assert (await client.read(READ, {"seq": 601, "batch": 9})).status == 404


async def test_a_batch_of_which_one_place_is_taken_is_not_stored(client: BatchClient) -> None:
    await client.append(texts(3), EMPTY)
    answer = msgspec.json.decode(await client.append([("mk.post.me.new", b""), *texts(1)], EMPTY))
    assert answer["error"]["err_code"] == 10071
    assert len((await client.read(READ, {"seq": 1, "batch": 9})).messages) == 3


async def test_a_batch_wakes_the_readers_of_other_processes_alone(mesh: Mesh, client: BatchClient) -> None:
    other = await BatchClient.join(mesh.server.url, mesh.identity.store_login(), "other")
    heard: dict[BatchClient, list[bytes]] = {client: [], other: []}
    for one, messages in heard.items():
        await one.subscribe("mk.post.>", partial(_heard, messages))
        await one.flush_subscriptions()
    await client.append(texts(20), EMPTY)
    await other.append([("mk.post.me.other", b"other")], {})
    await wait_for(lambda: heard[client], what="the message of the other process")
    assert heard == {client: [b"other"], other: [data for _, data in texts(20)]}
    await other.close()


async def test_what_waits_for_a_server_that_dies_ends(mesh: Mesh, client: BatchClient) -> None:
    with pytest.raises(HearthNetError) as no_stream:
        await client.append([("mk.unknown", b"")], EMPTY)
    assert no_stream.value.code == "partition"
    assert (await client.read("nobody.answers", {})).status == 503
    mesh.server.process.send_signal(signal.SIGSTOP)
    lost = asyncio.create_task(client.read(READ, {"seq": 1, "batch": 9}))
    await wait_for(lambda: client._reads, what="the request")
    mesh.server.kill()
    with pytest.raises(HearthNetError) as gone:
        await lost
    assert gone.value.code == "partition"
    with pytest.raises(HearthNetError):
        await client.append(texts(2), EMPTY)
    mesh.restart_server()
    await client.connected()
    assert (await client.read(READ, {"seq": 1, "batch": 9})).messages == []
