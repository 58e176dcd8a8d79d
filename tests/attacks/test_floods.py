"""A member that sends as fast as it can, so that a process has to remember more than it likes to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hearthnet import ids
from hearthnet.config import LimitsConfig
from hearthnet.service.peer_rates import PeerRates
from hearthnet.times import now_ms
from hearthnet.wire.replay import ReplayWindow
from tests.attacks.attacker import Answers, Attacker, outcome
from tests.helpers.mesh import Mesh
from tests.helpers.probe import QUERY, ProbeService, query
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
ROOM = 20


@pytest.mark.req("ATTACK-26")
async def test_who_floods_displaces_nobodys_frames_but_its_own(mesh: Mesh) -> None:
    """A captured call of somebody else stays worthless however much a member sends; so do the member's own,
    of which the process does not remember each any more; and what it sends in order is served all the while.
    """
    async with (
        mesh.hosting(ProbeService()) as host,
        await mesh.bus() as own,
        await mesh.guest_bus() as bus,
    ):
        host.peer.replay = ReplayWindow(most_ids=ROOM)
        host._rates = PeerRates(LimitsConfig(0, 0, 0, 0))  # what is refused by these is remembered, too
        mallory, victim = Attacker(bus), Attacker(own)

        view = await mallory.target(QUERY, mesh.identity.node_id)

        def call(by: Attacker, **changes: Any) -> tuple[str, bytes, str]:
            header = by.header(view, QUERY, query(), **changes)
            return by.subject(view, QUERY), by.boxed(by.inner(header, query(), signed=False), view), header.id

        began = now_ms() - 30_000
        captured, flood = call(victim), [call(mallory, time=began + 20 * at) for at in range(10 * ROOM)]
        assert await victim.deliver(*captured) == "ok"
        for one in flood:
            assert await mallory.deliver(*one) == "ok"
        assert len(host.peer.replay) <= 2 * ROOM

        dropped = host.dropped
        for by, one in ((victim, captured), (mallory, flood[-1])):
            await by.peer.link.publish(one[0], one[1])
        await wait_for(lambda: host.dropped == dropped + 2, 5, "both repetitions to be dropped")
        assert await mallory.deliver(*flood[0]) == "rate_limited"
        assert await mallory.deliver(*call(mallory)) == "ok"


@pytest.mark.req("ATTACK-26")
async def test_who_sends_too_much_at_once_is_told_when_to_come_back(mesh: Mesh) -> None:
    async with mesh.hosting(ProbeService()) as host, await mesh.guest_bus() as bus:
        host.peer.replay = ReplayWindow(most_ids=1)
        mallory = Attacker(bus)
        view = await mallory.target(QUERY, mesh.identity.node_id)
        made = now_ms()
        for _ in range(2):
            header = mallory.header(view, QUERY, query(), time=made, id=ids.new_ulid())
            answers = Answers()
            mallory.peer.replies.expect(header.id, answers)
            frame = mallory.boxed(mallory.inner(header, query(), signed=False), view)
            await mallory.peer.link.publish(mallory.subject(view, QUERY), frame)
            await asyncio.wait_for(answers.arrived.wait(), 5)
            mallory.peer.replies.forget(header.id)
        assert outcome(answers.frames) == "rate_limited"
        assert b'"retry_after_ms":2' in answers.frames[0].body
