"""How many of a process's places one other node may hold."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hearthnet import Call
from hearthnet.bus.bus import Bus
from tests.attacks.attacker import Attacker
from tests.helpers.mesh import Mesh
from tests.helpers.probe import QUERY, ProbeService, query
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio


@pytest.mark.req("ATTACK-42")
@pytest.mark.parametrize(("places", "most"), [(4, 2), (3, 1), (1, 1)])
async def test_another_node_holds_half_of_the_places_with_all_its_processes(
    mesh: Mesh, places: int, most: int
) -> None:
    service, free = ProbeService(places=places), asyncio.Event()

    async def hold(call: Call[Any, Any]) -> None:
        await free.wait()

    service.answer = hold

    def ask(bus: Bus, count: int) -> list[asyncio.Task[str]]:
        return [asyncio.create_task(Attacker(bus).call(view, QUERY, query())) for _ in range(count)]

    async with (
        mesh.hosting(service) as host,
        await mesh.guest_bus("one") as one,
        await mesh.guest_bus("two") as two,
        await mesh.bus() as own,
    ):
        view = await Attacker(one).target(QUERY, host.peer.node_id)
        asked = [*ask(one, places), *ask(two, places)]
        await wait_for(lambda: host.refused == 2 * places - most, what="the others to be refused")
        assert host.in_flight == most
        rest = ask(own, places - most)
        await wait_for(lambda: host.in_flight == places, what="the owner's calls")
        free.set()
        assert [await task for task in rest] == ["ok"] * (places - most)
        codes = [await task for task in asked]
        assert (codes.count("ok"), codes.count("capacity_exceeded")) == (most, 2 * places - most)
        assert await Attacker(two).call(view, QUERY, query()) == "ok", "its places are free again"


@pytest.mark.req("ATTACK-42")
async def test_a_place_is_held_by_who_answers_for_the_caller(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, free = ProbeService(places=2), asyncio.Event()

    async def hold(call: Call[Any, Any]) -> None:
        await free.wait()

    service.answer = hold
    async with mesh.hosting(service) as host, await mesh.guest_bus() as guest:
        inviter = mesh.identity.node_id
        monkeypatch.setattr(type(host.peer.roster), "line", lambda roster, node: (node, inviter))
        (offer,) = (entry for entry in host._active if entry.offer.capability == QUERY)
        call = asyncio.create_task(guest.call(QUERY, query()))
        await wait_for(lambda: host.in_flight == 1, what="the call")
        assert offer._held == {inviter: 1}
        assert not offer.has_place(inviter)
        monkeypatch.undo()
        free.set()
        await call
        assert offer._held == {}


@pytest.mark.req("ATTACK-42")
async def test_callers_of_another_node_wait_in_line_for_its_half(mesh: Mesh) -> None:
    """None of them is sent to be refused, and all get through."""
    async with mesh.hosting(ProbeService(places=4)) as host, await mesh.guest_bus() as guest:
        answers = await asyncio.gather(*(guest.call(QUERY, query()) for _ in range(8)))
        assert (len(answers), host.refused) == (8, 0)
