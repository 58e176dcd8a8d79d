"""Over a real server: who gets a place of a provider that is full."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from hearthnet import Call, Stream
from hearthnet.bus.bus import Bus
from hearthnet.core.errors import HearthNetError
from hearthnet.service.sharing.places import MAX_WAITING_OF_HOME
from tests.attacks.attacker import Attacker
from tests.helpers.mesh import Mesh, start_mesh
from tests.helpers.probe import CHAT, CHAT_BODY, QUERY, ProbeService, query
from tests.helpers.waiting import wait_for
from tests.service.sharing.test_place_line import jain

pytestmark = pytest.mark.asyncio
MODEST = 7
CALL_SECONDS = 0.03
GREEDY_SECONDS = 0.09
COUNTED = 20
"""Calls of each modest home that are counted."""


class Work:
    """Calls that take as long as their text says, and the time that each home got."""

    def __init__(self) -> None:
        self.seconds = defaultdict[str, float](float)
        self.calls = Counter[str]()
        self.order: list[str] = []

    async def answer(self, call: Call[Any, Any]) -> None:
        began = time.monotonic()
        self.order.append(call.caller)
        await asyncio.sleep(float(call.body["input"]["query"]))
        self.seconds[call.caller] += time.monotonic() - began
        self.calls[call.caller] += 1


class Held:
    """Calls that run until they are let go."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.began: list[str] = []

    async def answer(self, call: Call[Any, Any]) -> None:
        self.began.append(call.body["input"]["query"])
        await self.free.wait()

    async def talk(self, call: Call[Any, Any], stream: Stream) -> None:
        self.began.append("chat")
        await self.free.wait()


async def _keep_calling(bus: Bus, seconds: float) -> None:
    while True:
        await bus.call(QUERY, query(str(seconds)), timeout_seconds=60)


async def _code(work: Any) -> str:
    try:
        await work
    except HearthNetError as error:
        return error.rule or error.code
    return ""


@pytest.mark.req("SHARE-1", "ATTACK-129")
async def test_greedy_home_beside_seven_modest_ones_gets_an_eighth(tmp_path: Path) -> None:
    """The greedy one has two processes with fifty calls each, three times as long as those of the others.

    Each of the eight has a call ready at any time. Counted is the time that their calls ran, from the moment
    when all of them had one answered.
    """
    mesh, work = (
        await start_mesh(tmp_path, *(f"home{number}" for number in range(MODEST)), stores=False),
        Work(),
    )
    service = ProbeService(places=1)
    service.answer = work.answer
    buses = [await mesh.guest_bus("one"), await mesh.guest_bus("two")]
    modest = [await mesh.bus(at=home) for home in mesh.others]
    async with mesh.hosting(service) as host, asyncio.TaskGroup() as tasks, await mesh.bus() as own:
        calls = [tasks.create_task(_keep_calling(bus, GREEDY_SECONDS)) for bus in buses for _ in range(50)]
        calls += [tasks.create_task(_keep_calling(bus, CALL_SECONDS)) for bus in modest]
        await wait_for(lambda: len(work.calls) == MODEST + 1, what="a call of each home")
        work.seconds.clear()
        work.calls.clear()
        await wait_for(lambda: sum(work.calls.values()) >= COUNTED * MODEST, 60, "the calls that are counted")
        shares = [work.seconds[bus.peer.node_id] for bus in (buses[0], *modest)]
        index = jain(shares)
        view = await Attacker(own).target(QUERY, own.peer.node_id)
        before = len(work.order)
        assert await Attacker(own).call(view, QUERY, query("0"), waits=True) == "ok"
        overtaken_by = work.order[before:].index(own.peer.node_id)
        for call in calls:
            call.cancel()
    sys.stdout.write(f"Jain's index of the time of eight homes: {index:.4f}; refused {host.refused}\n")
    for bus in (*buses, *modest):
        await bus.close()
    mesh.server.stop()
    assert index >= 0.95, shares
    assert overtaken_by <= 1, "a call of the own home waits for one running call"


@pytest.mark.req("SHARE-1")
@pytest.mark.parametrize("kind", ["call", "stream"])
async def test_call_at_a_full_provider_waits_for_a_place(mesh: Mesh, kind: str) -> None:
    held, service = Held(), ProbeService(places=1)
    service.answer, service.talk = held.answer, held.talk

    async def ask(bus: Bus, name: str) -> None:
        if kind == "call":
            await bus.call(QUERY, query(name))
            return
        async with bus.stream(CHAT, CHAT_BODY) as stream:
            assert [frame.event async for frame in stream] == ["done"]

    async with (
        mesh.hosting(service) as host,
        await mesh.guest_bus() as guest,
        await mesh.bus() as one,
        await mesh.bus() as two,
    ):
        first = asyncio.create_task(ask(guest, "first"))
        await wait_for(lambda: held.began, what="the first call")
        waiting = [asyncio.create_task(ask(bus, "later")) for bus in (one, two)]
        await wait_for(lambda: host.in_flight == 3, what="two calls in line")
        assert (len(held.began), host.refused) == (1, 2), "each was refused once, and then waits"
        held.free.set()
        await asyncio.gather(first, *waiting)
        assert (len(held.began), host.refused) == (3, 2)


@pytest.mark.req("SHARE-1")
async def test_call_goes_to_a_free_provider_before_it_waits(mesh: Mesh) -> None:
    held, full, free = Held(), ProbeService(places=1), ProbeService(places=1)
    full.answer = held.answer
    async with mesh.hosting(full) as host, await mesh.bus() as own, await mesh.guest_bus() as guest:
        first = asyncio.create_task(own.call(QUERY, query()))
        await wait_for(lambda: held.began, what="the first call")
        async with mesh.hosting(free, mesh.guest):
            for _ in range(4):
                assert (await guest.call(QUERY, query())).provider == guest.peer.node_id
            assert host.in_flight == 1
        held.free.set()
        await first


@pytest.mark.req("SHARE-2")
async def test_waiting_call_ends_with_its_deadline_its_caller_and_its_provider(mesh: Mesh) -> None:
    held, service = Held(), ProbeService(places=1)
    service.answer = held.answer
    async with await mesh.guest_bus() as guest, await mesh.bus() as own:
        async with mesh.hosting(service) as host:
            first = asyncio.create_task(own.call(QUERY, query()))
            await wait_for(lambda: held.began, what="the first call")
            async with await mesh.bus() as other:  # their times end together
                codes = [_code(bus.call(QUERY, query(), timeout_seconds=1)) for bus in (guest, other)]
                assert await asyncio.gather(*codes) == ["no_place_in_time"] * 2
            entry = next(iter(guest._discovery.tables[QUERY].entries))
            assert not len(entry.health), "that is no failure of the provider"
            given_up = asyncio.create_task(guest.call(QUERY, query()))
            await wait_for(lambda: host.in_flight == 2, what="a call in line")
            given_up.cancel()
            await wait_for(lambda: host.in_flight == 1, what="the call to leave the line")
            left = asyncio.create_task(_code(guest.call(QUERY, query(), timeout_seconds=4)))
            await wait_for(lambda: host.in_flight == 2, what="a call in line")
            held.free.set()
            first.cancel()
        assert await left in ("capacity_exceeded", "not_found", "")
    assert len(held.began) <= 2


@pytest.mark.req("ATTACK-129")
async def test_home_with_many_processes_has_one_part_of_the_line(mesh: Mesh) -> None:
    held, service = Held(), ProbeService(places=1)
    service.answer = held.answer
    buses = [await mesh.guest_bus(f"process {number}") for number in range(2)]
    async with mesh.hosting(service) as host, await mesh.bus() as own:
        first = asyncio.create_task(own.call(QUERY, query("own")))
        await wait_for(lambda: held.began, what="the first call")
        view = await Attacker(buses[0]).target(QUERY, host.peer.node_id)
        calls = [
            asyncio.create_task(Attacker(bus).call(view, QUERY, query("greedy"), waits=True))
            for bus in buses
            for _ in range(MAX_WAITING_OF_HOME // 2 + 1)
        ]
        await wait_for(lambda: host.in_flight == 1 + MAX_WAITING_OF_HOME, what="the line")
        held.free.set()
        await first
        codes = [await call for call in calls]
    for bus in buses:
        await bus.close()
    refused = len(calls) - MAX_WAITING_OF_HOME
    assert Counter(codes) == {"ok": MAX_WAITING_OF_HOME, "capacity_exceeded": refused}
