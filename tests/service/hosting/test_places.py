"""How many of a process's places one other node may hold."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hearthnet import Call
from hearthnet.bus.bus import Bus
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.times import now_ms
from hearthnet.service.sharing.terms import Terms, changing_terms
from hearthnet.trust.authorization.token import Scope, mint
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
        assert offer.places.held(inviter) == 1
        assert not offer.places.is_free(inviter)
        monkeypatch.undo()
        free.set()
        await call
        assert offer.places.held(inviter) == 0


@pytest.mark.req("SHARE-5", "ATTACK-129")
@pytest.mark.parametrize("is_owner", [False, True])
async def test_nodes_of_one_person_are_one_home(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch, is_owner: bool
) -> None:
    """Those of the owner are this home: terms are not for them."""
    service, free, person = ProbeService(places=2), asyncio.Event(), "ed25519:" + "A" * 43

    async def hold(call: Call[Any, Any]) -> None:
        await free.wait()

    service.answer = hold
    with changing_terms(mesh.home.sharing) as terms:
        terms["probe"] = Terms(audience="nobody" if is_owner else "members")
    async with mesh.hosting(service) as host, await mesh.guest_bus() as guest:
        nodes = {guest.peer.node_id, host.peer.node_id if is_owner else ""}
        monkeypatch.setattr(
            type(host.peer.roster), "person_of", lambda roster, node: person if node in nodes else ""
        )
        (offer,) = (entry for entry in host._active if entry.offer.capability == QUERY)
        view = OfferView(
            host.peer.node_id, parse_capability(QUERY), offer.record(host.peer.instance, "probe", "0")
        )
        call = asyncio.create_task(Attacker(guest).call(view, QUERY, query()))
        await wait_for(lambda: host.in_flight == 1, what="the call")
        assert (offer.places.held(person), offer.places.held(guest.peer.node_id)) == (0 if is_owner else 1, 0)
        free.set()
        assert await call == "ok"


@pytest.mark.req("ATTACK-42")
async def test_callers_of_another_node_wait_in_line_for_its_half(mesh: Mesh) -> None:
    """None of them is sent to be refused, and all get through."""
    async with mesh.hosting(ProbeService(places=4)) as host, await mesh.guest_bus() as guest:
        answers = await asyncio.gather(*(guest.call(QUERY, query()) for _ in range(8)))
        assert (len(answers), host.refused) == (8, 0)


@pytest.mark.req("ATTACK-42")
async def test_clients_of_another_node_hold_no_more_places_through_the_gateway(mesh: Mesh) -> None:
    """They call as the own node, under tokens of theirs of which their node can sign any number."""
    service, free = ProbeService(places=4), asyncio.Event()

    async def hold(call: Call[Any, Any]) -> None:
        await free.wait()

    service.answer = hold
    async with mesh.hosting(service) as host, await mesh.bus() as gateway, await mesh.guest_bus() as guest:

        def token(name: str) -> str:
            return mint(
                guest.peer.identity,
                subject=mesh.identity.node_id,
                audience=guest.peer.community,
                scope=Scope(capabilities=(QUERY,)),
                now_ms=now_ms(),
                ttl_seconds=600,
                principal=name,
            )

        view = await Attacker(gateway).target(QUERY, host.peer.node_id)

        def ask(**fields: str) -> asyncio.Task[str]:
            return asyncio.create_task(Attacker(gateway).call(view, QUERY, query(), **fields))

        asked = [ask(token=token(f"guest{number}")) for number in range(4)]
        await wait_for(lambda: host.refused == 2, what="two of them to be refused")
        assert host.in_flight == 2
        own = [ask(), ask()]
        await wait_for(lambda: host.in_flight == 4, what="the owner's calls")
        free.set()
        assert [await task for task in own] == ["ok"] * 2
        assert sorted([await task for task in asked]) == ["capacity_exceeded"] * 2 + ["ok"] * 2
