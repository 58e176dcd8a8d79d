"""What the home keeps to itself is asked of the home alone, however long the asking process lives."""

from __future__ import annotations

import asyncio

import pytest

from hearthnet import Offer
from hearthnet.bus.bus import find_contract
from hearthnet.bus.calls import candidates
from hearthnet.bus.routing import discovery
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import steady_ms
from hearthnet.protocol import subjects
from hearthnet.protocol.offer import LIFETIME_MS
from tests.helpers.mesh import Mesh
from tests.helpers.probe import QUERY, ProbeService, query
from tests.helpers.waiting import wait_for

pytestmark = [pytest.mark.asyncio, pytest.mark.req("ATTACK-46")]
_CONTRACT = find_contract(QUERY)
_TOPIC = subjects.topic(_CONTRACT.capability)


async def test_a_neighbour_with_the_same_name_gets_no_call(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = steady_ms()
    for module in (candidates, discovery):
        monkeypatch.setattr(module, "steady_ms", lambda: now)
    mine, theirs = ProbeService(places=1, trust="home"), ProbeService()
    async with mesh.hosting(theirs, at=mesh.guest) as host, await mesh.bus() as bus:

        async def heard(node: str) -> None:
            known = bus._discovery.registry
            await wait_for(
                lambda: any(view.node == node for view in known.offers(_TOPIC, now)), what="the offer"
            )

        async with mesh.hosting(mine) as own:
            # The neighbour is heard before the home.
            await bus._discovery.follow(_CONTRACT)
            await bus.peer.link.flush_subscriptions()
            await host._announcer._announce()
            await heard(host.peer.node_id)
            await bus.call(QUERY, query())
            for _ in range(3):
                now += LIFETIME_MS + 1
                await host._announcer._announce()
                await heard(host.peer.node_id)
                await own._announcer._announce()
                await heard(bus.peer.node_id)
                await bus.call(QUERY, query())
            assert len(mine.calls) == 4
            # Nor is it asked where the home has no place left.
            mine.answer = lambda call: asyncio.sleep(3_600)
            taken = asyncio.create_task(bus.call(QUERY, query()))
            await wait_for(lambda: len(mine.calls) == 5, what="the place to be taken")
            with pytest.raises(HearthNetError):
                await bus.call(QUERY, query(), timeout_seconds=0.2)
            taken.cancel()
        # Nor while nobody at home answers.
        await host._announcer._announce()
        await heard(host.peer.node_id)
        with pytest.raises(HearthNetError):
            await bus.call(QUERY, query(), timeout_seconds=1)
        assert theirs.calls == []


async def test_an_opened_offer_is_one_of_many(mesh: Mesh) -> None:
    mine, theirs = ProbeService(trust="home"), ProbeService()
    async with mesh.hosting(theirs, at=mesh.guest), await mesh.bus() as bus:
        async with mesh.hosting(mine) as own:
            await bus.call(QUERY, query())
            mine.trust = ""
            await own.refresh()
            known = bus._discovery.registry
            await wait_for(
                lambda: not known.is_of_home(_CONTRACT, query(), lambda view: True), what="the opening"
            )
        await bus.call(QUERY, query())
        assert len(theirs.calls) == 1


class _Growing(ProbeService):
    """Offers more corpora to the home as it grows."""

    def __init__(self) -> None:
        super().__init__()
        self.private: list[str] = []

    def offers(self) -> list[Offer]:
        """Those of the probe, and the private ones."""
        more = [Offer(capability=QUERY, params={"corpus": name}, trust="home") for name in self.private]
        return [*super().offers(), *more]


async def test_other_nodes_hear_nothing_of_a_change_at_home(mesh: Mesh) -> None:
    service, heard = _Growing(), asyncio.Queue[str]()
    async with mesh.hosting(service) as own, await mesh.guest_bus() as guest:
        subject = subjects.announce(own.peer.node_id, _CONTRACT.capability)
        await guest.peer.link.subscribe(subject, lambda subject, data, absent: heard.put_nowait(subject))
        await guest.peer.link.flush_subscriptions()
        service.private.append("taxes")
        await own.refresh()
        service.places += 1
        await own.refresh()
        # The withdrawal of the former offer, and the new one.
        assert [await heard.get(), await heard.get()] == [subject, subject]
        await own.peer.link.flush_subscriptions()
        await guest.peer.link.flush_subscriptions()
        assert heard.empty()
