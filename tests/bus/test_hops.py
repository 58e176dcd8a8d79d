"""Deadlines over several hops, and what becomes of calls when a process stops."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hearthnet import Call, Stream
from hearthnet.bus.bus import Bus
from hearthnet.core.errors import HearthNetError
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT, CHAT_BODY, QUERY, ProbeService, query
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio


@pytest.mark.req("BUS-85")
async def test_a_deadline_shrinks_over_hops(mesh: Mesh) -> None:
    """A question of the guest to the home's chat, which asks the guest's corpus in a run of its own."""
    near, far, left = ProbeService(), ProbeService(), []
    after: list[asyncio.Task[Any]] = []
    async with mesh.hosting(near) as host, mesh.hosting(far, at=mesh.guest), await mesh.guest_bus() as bus:
        own = Bus(host.peer)

        async def ask(seconds: float) -> None:
            await own.call(QUERY, query(), timeout_seconds=seconds, node=bus.peer.node_id)

        async def talk(call: Call[Any, Any], stream: Stream) -> None:
            left.append(call.remaining())
            after.append(asyncio.create_task(left_running()))
            with host.peer.traces.run("a run", ""):
                await ask(500)

        async def left_running() -> None:
            await wait_for(lambda: host.in_flight == 0, 20, "the end of its handler")
            await ask(400)

        async def answer(call: Call[Any, Any]) -> None:
            left.append(call.remaining())

        near.talk, far.answer = talk, answer
        node = host.peer.node_id
        async with bus.stream(CHAT, CHAT_BODY, timeout_seconds=60, node=node) as stream:
            assert [frame.event async for frame in stream] == ["done"]
        await asyncio.gather(*after)
    first, second, third = left
    assert 60 >= first >= second > 0
    assert 400 >= third > 60


@pytest.mark.req("BUS-85")
async def test_a_handler_that_waits_for_others_is_told_that_the_time_is_up(mesh: Mesh) -> None:
    near, far, codes = ProbeService(), ProbeService(), []
    async with mesh.hosting(near) as host, mesh.hosting(far, at=mesh.guest), await mesh.guest_bus() as bus:
        own = Bus(host.peer)

        async def talk(call: Call[Any, Any], stream: Stream) -> None:
            # Its own end comes at that moment, too: what it asked has ended by itself then.
            await asyncio.shield(asyncio.create_task(ask()))

        async def ask() -> None:
            try:
                await own.call(QUERY, query(), timeout_seconds=600, node=bus.peer.node_id)
            except HearthNetError as error:
                codes.append(error.code)

        async def forever(call: Call[Any, Any]) -> None:
            await asyncio.Event().wait()

        near.talk, far.answer = talk, forever
        with pytest.raises(HearthNetError) as caught:
            await bus.call(CHAT, CHAT_BODY, timeout_seconds=2, node=host.peer.node_id)
        assert caught.value.code == "timeout"
        await wait_for(lambda: codes, 20, "the inner call to end")
    assert codes == ["timeout"]


@pytest.mark.req("BUS-86")
async def test_a_process_that_stops_lets_what_runs_finish_and_takes_nothing_new(mesh: Mesh) -> None:
    service, go_on = ProbeService(), asyncio.Event()

    async def answer(call: Call[Any, Any]) -> None:
        await go_on.wait()

    async def forever(call: Call[Any, Any], stream: Stream) -> None:
        await asyncio.Event().wait()

    service.answer, service.talk = answer, forever
    async with mesh.hosting(service) as host, await mesh.guest_bus() as bus:
        asked = asyncio.create_task(bus.call(QUERY, query()))
        stuck = asyncio.create_task(bus.call(CHAT, CHAT_BODY))
        await wait_for(lambda: len(service.calls) == 2, 20, "both calls")
        closing = asyncio.create_task(host.close(drain_seconds=5))
        await wait_for(lambda: host._draining, 20, "it to stop")
        await host.peer.link.flush_subscriptions()
        await bus.peer.link.flush_subscriptions()
        assert not asked.done()
        go_on.set()
        assert (await asked).output["chunks"]
        with pytest.raises(HearthNetError) as refused:
            await bus.call(QUERY, query(), timeout_seconds=1)
        assert refused.value.code in ("not_found", "capacity_exceeded"), (
            "its offer is gone, or it is stopping"
        )
        with pytest.raises(HearthNetError, match="was stopped at the provider") as stopped:
            await stuck
        assert stopped.value.code == "partition"
        await closing
        assert len(service.calls) == 2
        assert await bus.offers(QUERY) == []
