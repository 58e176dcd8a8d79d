"""A restored home begins nothing that it may have done before, and says what it does not know."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.restore_mark import RestoreMark, write_mark
from hearthnet.core.times import now_ms
from hearthnet.service.effects.audit_log import AuditLog
from hearthnet.supervisor.nats import restored_logs
from hearthnet.supervisor.nats.restored_logs import settle_restored
from tests.helpers.mesh import Mesh
from tests.helpers.probe import POST, ProbeService, post
from tests.service.workers import approval, audited, body, grant, ingest, working

pytestmark = pytest.mark.asyncio


def mark(mesh: Mesh, restored_at: int = 0) -> RestoreMark:
    """Marks the home as restored a moment ago, from a backup of an hour before."""
    now = restored_at or now_ms()
    made = RestoreMark(ids.new_ulid(now - 3_600_000), now - 3_600_000, now)
    write_mark(mesh.home, made)
    return made


async def refused(work: Any) -> HearthNetError:
    """The error of a call."""
    with pytest.raises(HearthNetError) as raised:
        await work
    return raised.value


@pytest.mark.req("BACKUP-9", "ATTACK-51")
async def test_consent_of_before_a_restore_begins_nothing(mesh: Mesh) -> None:
    with working(mesh) as workers:
        async with await mesh.bus() as bus:
            wanted, key = body(), ids.new_ulid()
            old, old_grant = approval(bus, wanted, key), grant(bus)
            done_key, done = ids.new_ulid(), body(document="done")
            told = approval(bus, done, done_key)
            await workers.start(bus)
            await ingest(bus, done, approval=told, idempotency_key=done_key)
            workers.end()
            mark(mesh)
            await workers.start(bus)
            for consent in ({"approval": old, "idempotency_key": key}, {"grant": old_grant, "use": 1}):
                error = await refused(ingest(bus, wanted, **consent))
                assert error.code == "outcome_unknown"
                assert "restored from a backup" in error.message
            # What is on record is told, and what is approved now is done.
            repeated = await ingest(bus, done, approval=told, idempotency_key=done_key)
            assert repeated.meta["repeated"]
            fresh = approval(bus, wanted, key, time=now_ms() + 10)
            await ingest(bus, wanted, approval=fresh, idempotency_key=key)
            assert len(workers.effects) == 2


@pytest.mark.req("BACKUP-9")
async def test_lost_posts_are_made_again(mesh: Mesh) -> None:
    key = ids.new_ulid()
    mark(mesh)
    async with mesh.hosting(ProbeService()), await mesh.bus() as bus:
        first = await bus.call(POST, post(key))
        assert (await bus.call(POST, post(key))).output == first.output


@pytest.mark.req("BACKUP-9")
async def test_logs_of_a_restored_home_say_so(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restored_logs, "SKIPPED", 20)
    async with mesh.hosting(ProbeService()), await mesh.bus() as bus:
        before = (await bus.call(POST, post(ids.new_ulid()))).output["lamport"]
    made = mark(mesh)
    async with await mesh.store() as store:
        # Left by a start that was interrupted.
        await store.js.publish("mk.post.restored.3", b"", stream="MARKET")
        assert await settle_restored(mesh.home, store, mesh.identity, mesh.identity.node_id) == made
        assert await settle_restored(mesh.home, store, mesh.identity, mesh.identity.node_id) is None
        entries, finding = await audited(mesh, AuditLog(store, mesh.identity))
        info = await store.js.stream_info("MARKET", subjects_filter="mk.post.restored.>")
    assert finding is None
    assert not info.state.subjects
    entry = entries[-1]
    assert (entry.kind, entry.call, entry.count) == ("restored", made.backup, entry.sequence - 1)
    async with mesh.hosting(ProbeService()), await mesh.bus() as bus:
        after = (await bus.call(POST, post(ids.new_ulid(now_ms() + 10)))).output["lamport"]
    assert after == before + 21  # one of the twenty places was there
