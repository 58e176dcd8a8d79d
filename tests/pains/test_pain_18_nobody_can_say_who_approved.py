"""18. Nobody can say who approved: one query, and a log in which an edit is found."""

from __future__ import annotations

import msgspec
import pytest

from hearthnet.agent.tools.types import Approve
from hearthnet.core.canonical_json import canonical_json
from hearthnet.protocol import evidence
from hearthnet.service.effects.audit_log import AuditLog
from hearthnet.trust import audit_chain
from tests.helpers.mesh import Mesh
from tests.pains.acting import POST, acting, says, wants

pytestmark = pytest.mark.asyncio


@pytest.mark.req("PAIN-18", "RUN-10")
async def test_one_query_says_it_all_and_an_edit_of_the_log_is_found(mesh: Mesh) -> None:
    async with acting(mesh, [wants("market_post", POST, "p")], [says("Posted.")]) as scene:
        run = await scene.suspended()
        await scene.saved.decide(run, "p", Approve(), via="the terminal")
        await scene.executor().resume(run)
        page = await scene.saved.page(run)
        (effect,) = page.record.effects
        said = page.decisions[effect.asked.confirmation_id]
        decided, began, ended = page.log
        assert effect.asked.body["input"]["title"] == "Water filter"
        assert 0 < effect.proposed_at <= said.time <= effect.claimed_at <= effect.ended_at
        assert (said.by, said.via, said.word) == (mesh.identity.node_id, "the terminal", "approved")
        assert [entry.kind for entry in page.log] == ["decided", "began", "ended"]
        assert said.shown == decided.digest == began.digest == effect.asked.arguments_digest
        assert (decided.code, began.run, began.idempotency_key) == ("approved", run, effect.asked.client_id)
        assert (ended.code, effect.status) == ("", "completed")
        assert ended.outcome.startswith("blake3:")
        async with await mesh.store() as store:
            log = AuditLog(store, mesh.identity)
            end = (await log.end()).sequence
            lines = [one.data async for batch in log.lines(0, end) for one in batch]
    verifier = audit_chain.Verifier(mesh.identity.node_id, (), evidence.problem)
    for line in lines:
        verifier.feed(line)
    assert verifier.end(None) is None
    edited = msgspec.structs.replace(decided, code="denied")
    other = audit_chain.Verifier(mesh.identity.node_id, (), evidence.problem)
    for line in lines:
        wrong = audit_chain.read(line).kind == "decided"
        other.feed(canonical_json(msgspec.to_builtins(edited)) if wrong else line)
    finding = other.end(None)
    assert finding is not None
    assert (finding.entry, finding.problem) == (decided.sequence, "altered")
