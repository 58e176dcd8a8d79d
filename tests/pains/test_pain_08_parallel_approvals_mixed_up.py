"""8. Parallel approvals mixed up: five pending calls, answered in random order by two clients, one twice."""

from __future__ import annotations

import asyncio
import random

import pytest

from hearthnet.agent.persistence.jetstream_store import StoredRuns
from hearthnet.agent.persistence.saved_runs import SavedRuns
from hearthnet.agent.tools.types import Approve, Decision, Deny
from tests.helpers.mesh import Mesh
from tests.pains.acting import POST, acting, says, wants

pytestmark = pytest.mark.asyncio
CALLS = ["a", "b", "c", "d", "e"]


@pytest.mark.req("PAIN-8", "RUN-6", "RUN-10")
async def test_five_calls_get_exactly_five_decisions(mesh: Mesh) -> None:
    turn = [wants("market_post", {**POST, "title": name}, name) for name in CALLS]
    async with acting(mesh, turn, [says("Done.")]) as scene, await mesh.store() as other:
        run = await scene.suspended()
        second = SavedRuns(StoredRuns(other, mesh.identity), mesh.identity, scene.bus.peer.community)
        answers: list[tuple[SavedRuns, str, Decision]] = [
            (random.choice([scene.saved, second]), name, Approve()) for name in random.sample(CALLS, 5)
        ]
        name = random.choice(CALLS)
        answers.append((second, name, Deny()))  # one is answered twice
        taken = await asyncio.gather(
            *(saved.decide(run, name, decision, via="test") for saved, name, decision in answers)
        )
        assert sum(not one.repeated for one in taken) == 5
        late = await scene.saved.decide(run, name, Deny(), via="late")
        stands = {one.signed.tool_call_id: one.signed for one in taken}
        assert late.repeated
        assert late.signed == stands[name]
        await scene.executor().resume(run)
        page = await scene.saved.page(run)
        decided = [entry for entry in page.log if entry.kind == "decided"]
        assert len(decided) == len({entry.call for entry in decided}) == 5
        yes = sorted(name for name, said in stands.items() if said.word == "approved")
        assert sorted(await scene.effects()) == yes
