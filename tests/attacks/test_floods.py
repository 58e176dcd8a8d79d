"""A member that sends as fast as it can, so that a process has to remember more than it likes to."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from hearthnet.core import ids
from hearthnet.core.times import now_ms
from tests.attacks.attacker import NO_ANSWER, Answers, Attacker, outcome
from tests.bus import failing_worker
from tests.helpers.mesh import Mesh
from tests.helpers.probe import QUERY, query

pytestmark = pytest.mark.asyncio
ROOM = 20


@pytest.mark.req("ATTACK-26")
async def test_who_floods_displaces_nobodys_frames_but_its_own(mesh: Mesh) -> None:
    """A captured call of somebody else stays worthless however much a member sends; so do the member's own,
    of which the process does not remember each any more; and what it sends in order is served all the while.
    """
    async with (
        failing_worker.running(mesh, room=ROOM),
        await mesh.bus() as own,
        await mesh.guest_bus() as bus,
    ):
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

        for by, one in ((victim, captured), (mallory, flood[-1])):
            answers = Answers()
            by.peer.replies.expect(one[2], answers)
            await by.peer.link.publish(one[0], one[1])
            # Answered by the same process, on the same connection, after it read the repetition.
            assert await by.deliver(*call(by)) == "ok"
            by.peer.replies.forget(one[2])
            assert outcome(answers.frames) == NO_ANSWER
        assert await mallory.deliver(*flood[0]) == "rate_limited"
        assert await mallory.deliver(*call(mallory)) == "ok"


@pytest.mark.req("ATTACK-26")
async def test_who_sends_too_much_at_once_is_told_when_to_come_back(mesh: Mesh) -> None:
    async with failing_worker.running(mesh, room=1), await mesh.guest_bus() as bus:
        mallory = Attacker(bus)
        view = await mallory.target(QUERY, mesh.identity.node_id)
        made = now_ms()
        for _ in range(2):
            header = mallory.header(view, QUERY, query(), time=made, id=ids.new_ulid())
            answers = Answers()
            mallory.peer.replies.expect(header.id, answers)
            frame = mallory.boxed(mallory.inner(header, query(), signed=False), view)
            await mallory.peer.link.publish(mallory.subject(view, QUERY), frame)
            await asyncio.wait_for(answers.arrived.wait(), 30)
            mallory.peer.replies.forget(header.id)
        assert outcome(answers.frames) == "rate_limited"
        assert 250 <= msgspec.json.decode(answers.frames[0].body)["retry_after_ms"] <= 1_000
