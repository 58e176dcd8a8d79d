"""Over a real server: overload is not multiplied, what fails is left alone, sessions stay where they are."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from hearthnet import Call, Stream
from hearthnet.bus.bus import Bus
from hearthnet.bus.calls import candidates
from hearthnet.bus.routing.health import FEWEST, FIRST_RETRIES, RETRIES_PER_SECOND, RETRY_SHARE
from hearthnet.core.errors import HearthNetError
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT, CHAT_BODY, QUERY, ProbeService, query
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
CALLS = 300


async def _code(work: Any) -> str:
    try:
        await work
    except HearthNetError as error:
        return error.code
    return ""


@pytest.mark.req("BUS-26")
async def test_a_process_that_refuses_everything_is_hardly_asked_more_often(mesh: Mesh) -> None:
    service = ProbeService(places=1_000)

    async def refuse(call: Call[Any, Any]) -> None:
        raise HearthNetError("capacity_exceeded", "full", retry_after_ms=20)

    service.answer = refuse
    async with mesh.hosting(service), await mesh.bus() as bus:
        began = time.monotonic()
        codes = await asyncio.gather(*(_code(bus.call(QUERY, query())) for _ in range(CALLS)))
        took = time.monotonic() - began
    assert set(codes) == {"capacity_exceeded"}
    again = len(service.calls) - CALLS
    assert FIRST_RETRIES <= again <= FIRST_RETRIES + RETRY_SHARE * CALLS + RETRIES_PER_SECOND * took + 1


@pytest.mark.req("BUS-5", "BUS-26")
@pytest.mark.parametrize("look_seconds", [4.0, 0.02])
async def test_calls_that_take_each_others_places_wait_in_line_and_all_get_through(
    look_seconds: float, mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they look in between whether somebody else has a place."""
    monkeypatch.setattr(candidates, "_LOOK_SECONDS", look_seconds)
    service = ProbeService(places=4)
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        await bus.call(QUERY, query())
        given_up = asyncio.create_task(bus.call(QUERY, query()))
        replies = [asyncio.create_task(bus.call(QUERY, query(str(number)))) for number in range(200)]
        given_up.cancel()
        assert all(reply.output for reply in await asyncio.gather(*replies))
        async with bus.stream(CHAT, CHAT_BODY) as stream:
            assert [frame.event async for frame in stream][-1] == "done"
        assert host.refused == 0, "nobody was asked who had no place"
        assert bus._discovery.registry.lines == {}
    asked = [call.body["input"]["query"] for call in service.calls if "query" in call.body["input"]]
    order = [int(text) for text in asked[-200:]]
    assert sorted(order) == list(range(200))
    # Calls for which places become free at the same moment go in any order.
    overtaken = [sum(other > one for other in order[:place]) for place, one in enumerate(order)]
    assert max(overtaken) < service.places


@pytest.mark.req("BUS-26")
@pytest.mark.parametrize("code", ["capacity_exceeded", "rate_limited"])
async def test_who_is_told_when_to_come_back_does_not_come_before(mesh: Mesh, code: str) -> None:
    service, at = ProbeService(), list[float]()

    async def not_yet(call: Call[Any, Any]) -> None:
        at.append(time.monotonic())
        if len(at) == 1:
            raise HearthNetError(code, "not yet", retry_after_ms=300)

    async def talk(call: Call[Any, Any], stream: Stream) -> None:
        await not_yet(call)

    service.answer, service.talk = not_yet, talk
    async with mesh.hosting(service), await mesh.bus() as bus:
        assert (await bus.call(QUERY, query())).output
        assert at[1] - at[0] >= 0.3
        at.clear()
        async with bus.stream(CHAT, CHAT_BODY) as stream:
            assert [frame.event async for frame in stream] == ["done"]
        assert at[1] - at[0] >= 0.3


@pytest.mark.req("BUS-26")
async def test_who_is_told_to_come_back_much_later_is_told_so(mesh: Mesh) -> None:
    service = ProbeService()

    async def later(call: Call[Any, Any]) -> None:
        raise HearthNetError("rate_limited", "wait a minute", retry_after_ms=60_000)

    service.answer = later
    async with mesh.hosting(service), await mesh.bus() as bus:
        with pytest.raises(HearthNetError, match="wait a minute") as caught:
            await bus.call(QUERY, query())
    assert (caught.value.code, caught.value.retry_after_ms) == ("rate_limited", 60_000)
    assert len(service.calls) == 1


@pytest.mark.req("BUS-24")
async def test_what_fails_is_left_alone_for_one_that_works(mesh: Mesh) -> None:
    bad, good = ProbeService(), ProbeService()

    async def fail(call: Call[Any, Any]) -> None:
        raise HearthNetError("internal_error", "broken")

    bad.answer = fail
    async with mesh.hosting(bad, at=mesh.guest), await mesh.guest_bus() as guest:
        codes = [await _code(guest.call(QUERY, query())) for _ in range(FEWEST + 2)]
        assert codes == ["internal_error"] * FEWEST + ["partition"] * 2
        assert len(bad.calls) == FEWEST
        async with mesh.hosting(good):
            await wait_for(lambda: len(guest._discovery.registry) == 2, 20, "the announcement")
            for _ in range(5):
                assert (await guest.call(QUERY, query())).provider == mesh.identity.node_id
    assert len(bad.calls) == FEWEST


async def _who(bus: Bus, session: str) -> set[str]:
    called = {(await bus.call(QUERY, query(), session=session)).instance for _ in range(3)}
    async with bus.stream(CHAT, CHAT_BODY, session=session) as stream:
        [frame async for frame in stream]
    return called


@pytest.mark.req("BUS-25")
async def test_a_session_stays_with_its_process_and_moves_when_that_is_gone(mesh: Mesh) -> None:
    one, two, names = ProbeService(places=64), ProbeService(places=64), [str(number) for number in range(16)]

    async def places(bus: Bus) -> list[set[str]]:
        return await asyncio.gather(*(_who(bus, name) for name in names))

    async with await mesh.bus() as bus:
        for name, body in ((QUERY, query()), (CHAT, CHAT_BODY)):
            assert await _code(bus.call(name, body)) == "not_found"
        async with mesh.hosting(one) as first:
            async with mesh.hosting(two) as second:
                await wait_for(lambda: len(bus._discovery.registry) == 4, what="the announcements")
                asked = await places(bus)
                assert all(len(instances) == 1 for instances in asked)
                assert set.union(*asked) == {first.peer.instance, second.peer.instance}
                assert await places(bus) == asked
            assert await places(bus) == [{first.peer.instance}] * len(names)
        with pytest.raises(HearthNetError, match="64"):
            await bus.call(QUERY, query(), session="x" * 65)
    assert {call.session for call in one.calls} == set(names)
