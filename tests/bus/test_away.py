"""Deadlines of any size, a server that is away when it is asked, callers that give up, many at once."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from hearthnet import Call
from hearthnet.bus.bus import Bus
from hearthnet.core.errors import HearthNetError
from hearthnet.nats.client import NatsClient
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT, CHAT_BODY, QUERY, ProbeService, query
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio


async def _talk(bus: Bus, seconds: float | None = None) -> str:
    async with bus.stream(CHAT, CHAT_BODY, timeout_seconds=seconds) as stream:
        return [frame.event async for frame in stream][-1]


async def _forever(call: Call[Any, Any]) -> None:
    await asyncio.Event().wait()


async def _down(mesh: Mesh, *links: NatsClient) -> None:
    mesh.server.kill()
    await wait_for(lambda: not any(link.is_connected for link in links), what="the loss to be noticed")


@pytest.mark.req("BUS-16")
@pytest.mark.parametrize(
    ("seconds", "code"), [(0.0, "timeout"), (-5.0, "timeout"), (float("nan"), "bad_request")]
)
async def test_without_time_nothing_is_sent(mesh: Mesh, seconds: float, code: str) -> None:
    service = ProbeService()
    async with mesh.hosting(service), await mesh.bus() as bus:
        for asking in (bus.call(QUERY, query(), timeout_seconds=seconds), _talk(bus, seconds)):
            with pytest.raises(HearthNetError) as caught:
                await asking
            assert caught.value.code == code
        assert (await bus.call(QUERY, query())).output
    assert len(service.calls) == 1


@pytest.mark.req("BUS-16")
@pytest.mark.parametrize("seconds", [1e12, float("inf")])
async def test_no_call_takes_longer_than_an_hour(mesh: Mesh, seconds: float) -> None:
    service = ProbeService()
    async with mesh.hosting(service), await mesh.bus() as bus:
        await bus.call(QUERY, query(), timeout_seconds=seconds)
        assert await _talk(bus, seconds) == "done"
    left = [call.remaining() for call in service.calls]
    assert len(left) == 2
    assert 3000 < min(left) <= max(left) <= 3600


@pytest.mark.req("BUS-17")
async def test_who_asks_while_the_server_is_away_waits_for_it(mesh: Mesh) -> None:
    async with mesh.hosting(ProbeService()) as host, await mesh.bus() as bus:
        await _down(mesh, bus.peer.link, host.peer.link)
        call, stream = asyncio.create_task(bus.call(QUERY, query())), asyncio.create_task(_talk(bus))
        mesh.server = mesh.server.again()
        assert (await call).output
        assert await stream == "done"


@pytest.mark.req("BUS-17")
async def test_a_server_that_stays_away_is_a_partition_at_the_deadline(mesh: Mesh) -> None:
    bus = await mesh.bus()
    await _down(mesh, bus.peer.link)
    began = time.monotonic()
    with pytest.raises(HearthNetError, match="is the node running") as caught:
        await bus.call(QUERY, query(), timeout_seconds=0.2)
    assert caught.value.code == "partition"
    assert 0.2 <= time.monotonic() - began < 2
    mesh.server = mesh.server.again()
    await bus.close()


@pytest.mark.req("BUS-17")
async def test_a_bus_that_was_left_says_so(mesh: Mesh) -> None:
    bus = await mesh.bus()
    await bus.close()
    with pytest.raises(HearthNetError, match="closed"):
        await bus.call(QUERY, query())
    with pytest.raises(HearthNetError, match="it is away"):
        await bus.peer.link.flush_subscriptions()
    await bus.peer.link.closed()


@pytest.mark.req("BUS-4")
async def test_giving_up_on_a_broken_connection_is_still_giving_up(mesh: Mesh) -> None:
    service = ProbeService()
    service.answer = _forever
    async with mesh.hosting(service):
        bus = await mesh.bus()
        asking = asyncio.create_task(bus.call(QUERY, query()))
        await wait_for(lambda: service.calls, what="the call")
        await bus.close()
        asking.cancel()
        await asyncio.wait({asking})
    assert asking.cancelled()


@pytest.mark.req("BUS-18")
async def test_a_thousand_calls_at_once_are_one_find(mesh: Mesh) -> None:
    asked: list[str] = []
    async with mesh.hosting(ProbeService(places=1000)), await mesh.bus() as bus:
        await bus.peer.link.subscribe("hn.find.>", lambda subject, data, absent: asked.append(subject))
        await bus.peer.link.flush_subscriptions()
        replies = await asyncio.gather(*(bus.call(QUERY, query()) for _ in range(1000)))
    assert all(reply.output for reply in replies)
    assert len(asked) == 1


@pytest.mark.req("BUS-18")
async def test_a_find_outlives_the_caller_who_asked_first(mesh: Mesh) -> None:
    async with mesh.hosting(ProbeService()), await mesh.bus() as bus:
        finds: list[str] = []

        def found(subject: str, _data: bytes, _absent: bool) -> None:
            finds.append(subject)
            first.cancel()

        await bus.peer.link.subscribe("hn.find.>", found)
        await bus.peer.link.flush_subscriptions()
        first, second = (asyncio.create_task(bus.call(QUERY, query())) for _ in range(2))
        assert (await second).output
        assert first.cancelled()
        assert len(finds) == 1
