"""What is removed from the audit log leaves a chain that can be verified, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from hearthnet.bus.store import Store
from hearthnet.core.config import AuditConfig
from hearthnet.core.errors import HearthNetError
from hearthnet.core.process_lock import ProcessLock
from hearthnet.core.times import now_ms
from hearthnet.service.effects.audit_log import STREAM, AuditLog
from hearthnet.service.effects.jetstream_records import Message
from hearthnet.supervisor.nats import audit_retention, streams
from hearthnet.supervisor.nats.audit_retention import KEPT_MS, Retention
from hearthnet.trust import audit_chain
from hearthnet.trust.audit_chain import AuditEntry, Verifier
from tests.helpers.audited_calls import DAY_MS, OLD_DAYS, SECONDS, entry_fields, write_calls
from tests.helpers.mesh import Mesh
from tests.helpers.processes import child_environment
from tests.service.workers import body, grant, ingest, working

pytestmark = pytest.mark.asyncio
YEAR = AuditConfig()
_KILLED_AT = """
import asyncio, os, signal, sys
from pathlib import Path
from hearthnet.bus.session.keyring import load_identity, load_roster
from hearthnet.bus.store import Store
from hearthnet.core.config import AuditConfig
from hearthnet.core.home import Home
from hearthnet.service.effects.jetstream_records import Message
from hearthnet.supervisor.nats import audit_retention, streams

home, url, at = Home.resolve(Path(sys.argv[1])), sys.argv[2], sys.argv[3]

async def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    if at == "checkpoint":
        audit_retention.streams.trim_audit = die
    else:
        audit_retention.streams.reopen_audit = die
    community = load_roster(home.roster).community_id
    retention = audit_retention.Retention(home, load_identity(home.device_key), community, AuditConfig())
    async with await Store.join(home, url, "retention") as store:
        await retention.step(store)

asyncio.run(main())
"""


def retention(mesh: Mesh, settings: AuditConfig = YEAR) -> Retention:
    """The retention of the node under test."""
    return Retention(mesh.home, mesh.identity, mesh.identity.node_id, settings)


async def write(mesh: Mesh, store: Store, calls: int, days: float, *, frame_bytes: int = 0) -> None:
    """Adds calls that began and ended so many days ago."""
    await write_calls(mesh.identity, store, calls, days, frame_bytes=frame_bytes)


async def verified(mesh: Mesh, store: Store) -> Verifier:
    """The verifier that has read the log, which is found whole."""
    verifier, log = Verifier(mesh.identity.node_id), AuditLog(store, mesh.identity)
    there = await log.extent()
    async for batch in log.lines(there.first - 1, there.last):
        for message in batch:
            verifier.feed(message.data)
    assert verifier.end(None) is None
    assert verifier.start.sequence == there.first - 1
    return verifier


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes few entries a step."""
    monkeypatch.setattr(audit_retention, "STEP_ENTRIES", 16)


@pytest.mark.req("AUDIT-10", "AUDIT-11")
async def test_old_entries_go_behind_checkpoints(mesh: Mesh) -> None:
    async with await mesh.store() as store:
        await write(mesh, store, 20, OLD_DAYS)
        await write(mesh, store, 3, 1.5)
        trimmed, steps = retention(mesh), 0
        while await trimmed.step(store):
            steps += 1
        assert steps == 3
        verifier = await verified(mesh, store)
        assert verifier.start.sequence == 40
        point = verifier.checkpoint
        assert point is not None
        assert (point.kind, point.count, point.rule, point.sequence) == ("removed", 40, "age", 49)
        assert now_ms() - point.time < 60_000
        assert not streams.is_trimming((await store.js.stream_info(STREAM)).config)
        await write(mesh, store, 1, 0)
        assert not await trimmed.step(store), "checkpoints and the rest are young"


@pytest.mark.req("AUDIT-10")
async def test_a_large_log_loses_its_oldest_but_nothing_recent(mesh: Mesh) -> None:
    small = AuditConfig(max_mb=1)
    async with await mesh.store() as store:
        await write(mesh, store, 30, 3, frame_bytes=50_000)
        trimmed = retention(mesh, small)
        while await trimmed.step(store):
            pass
        left = await AuditLog(store, mesh.identity).extent()
        assert 750_000 < left.size_bytes < 900_000 + 60_000
        assert (await verified(mesh, store)).checkpoint.rule == "size"  # type: ignore[union-attr]
        await write(mesh, store, 30, (KEPT_MS - 60_000) / DAY_MS, frame_bytes=50_000)
        while await trimmed.step(store):
            pass
        kept = await AuditLog(store, mesh.identity).extent()
        # All of the last 25 hours, however large, and the checkpoints behind them.
        assert kept.size_bytes > 1_500_000
        await verified(mesh, store)
        lines = [line async for batch in AuditLog(store, mesh.identity).lines(0, kept.last) for line in batch]
        recent = [entry for entry in (audit_chain.read(line.data) for line in lines) if entry.kind == "began"]
        assert len(recent) == 30


@pytest.mark.req("AUDIT-10")
async def test_nothing_exceeded_is_removed(mesh: Mesh) -> None:
    async with await mesh.store() as store:
        await write(mesh, store, 4, OLD_DAYS)
        assert not await retention(mesh, AuditConfig(keep_days=0, max_mb=0)).step(store)
        # A clock that was put back: the newest entry is of tomorrow.
        await write(mesh, store, 1, -1)
        assert not await retention(mesh).step(store)
        assert (await verified(mesh, store)).start.sequence == 0


@pytest.mark.req("AUDIT-10")
async def test_an_entry_of_a_wrong_clock_is_as_old_as_the_next(mesh: Mesh) -> None:
    """Written while the clock was ahead, and older than what follows."""
    tiny, frame = AuditConfig(max_mb=1), 300_000
    async with await mesh.store() as store:
        await write(mesh, store, 1, 3)
        await write(mesh, store, 3, -300, frame_bytes=frame)
        await write(mesh, store, 1, 0, frame_bytes=frame)
        assert await retention(mesh, tiny).step(store)
        assert (await verified(mesh, store)).start.sequence == 2, "perhaps they are of today"
        await write(mesh, store, 1, 2)
        assert not await retention(mesh, tiny).step(store)


@pytest.mark.req("AUDIT-10")
async def test_a_step_is_bounded_in_bytes(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_retention, "STEP_BYTES", 200_000)
    async with await mesh.store() as store:
        await write(mesh, store, 3, OLD_DAYS, frame_bytes=90_000)
        assert await retention(mesh).step(store)
        assert (await verified(mesh, store)).start.sequence == 4


@pytest.mark.req("AUDIT-10")
async def test_where_the_log_was_not_read_to_its_end_no_end_is_written(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second end of a call would break the chain for good."""
    async with await mesh.store() as store:
        log = AuditLog(store, mesh.identity)
        began = AuditEntry(kind="began", call="late", **entry_fields(mesh.identity, OLD_DAYS))
        await log.append(began, SECONDS)
        await write(mesh, store, 20, OLD_DAYS)
        ended = AuditEntry(kind="ended", call="late", began=1, **entry_fields(mesh.identity, OLD_DAYS))
        await log.append(ended, SECONDS)
        lines = AuditLog.lines

        def cut_off(log: AuditLog, after: int, upto: int) -> AsyncIterator[list[Message]]:
            return lines(log, after, min(upto, 30))

        monkeypatch.setattr(AuditLog, "lines", cut_off)
        assert not await retention(mesh).step(store)
        monkeypatch.undo()
        assert (await log.extent()).last == 42
        assert await retention(mesh).step(store)
        await verified(mesh, store)


@pytest.mark.req("AUDIT-10")
async def test_a_call_without_an_end_is_ended_before_it_is_removed(mesh: Mesh) -> None:
    """Also if its process still runs: no call lives that long."""
    async with await mesh.store() as store:
        await write(mesh, store, 2, OLD_DAYS)
        log, lock = AuditLog(store, mesh.identity), ProcessLock(mesh.home, "qrstuvwx", "probe")
        given = {**entry_fields(mesh.identity, OLD_DAYS), "instance": "qrstuvwx"}
        await log.append(AuditEntry(kind="began", call="open", **given), SECONDS)
        await write(mesh, store, 30, OLD_DAYS)
        trimmed = retention(mesh)
        assert await trimmed.step(store)
        assert (await verified(mesh, store)).start.sequence == 4
        ended = audit_chain.read(await log.line(66) or b"")
        assert (ended.kind, ended.began, ended.call, ended.code) == ("ended", 5, "open", "outcome_unknown")
        while await trimmed.step(store):
            pass
        verifier = await verified(mesh, store)
        assert (verifier.start.sequence, verifier.open) == (65, {})
        lock.close(settled=True)


@pytest.mark.req("AUDIT-10", "AUDIT-11")
async def test_effects_go_on_while_entries_are_removed(mesh: Mesh) -> None:
    """Two processes write, a third one removes, and no effect is lost or refused."""
    async with await mesh.store() as store:
        await write(mesh, store, 100, OLD_DAYS)
        with working(mesh) as workers:
            async with await mesh.bus() as bus:
                await workers.start(bus, 2)
                granted, trimmed, steps = grant(bus, max_uses=200), retention(mesh), 0
                calls = [
                    asyncio.create_task(ingest(bus, body(document=str(n)), grant=granted, use=n + 1))
                    for n in range(120)
                ]
                while await trimmed.step(store):
                    steps += 1
                replies = await asyncio.gather(*calls)
                assert len(workers.effects) == len(replies) == 120
        assert steps == 13
        verifier = await verified(mesh, store)
        assert (verifier.start.sequence, verifier.open) == (200, {})
        assert verifier.place.sequence == 200 + 2 * 120 + steps


def killed(mesh: Mesh, at: str) -> None:
    """A process that removes entries and is killed there."""
    command = [sys.executable, "-c", _KILLED_AT, str(mesh.home.path), mesh.server.url, at]
    done = subprocess.run(command, env=child_environment(), timeout=SECONDS, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


@pytest.mark.req("AUDIT-11")
async def test_killed_behind_its_checkpoint_it_is_done_again(mesh: Mesh) -> None:
    async with await mesh.store() as store:
        await write(mesh, store, 5, OLD_DAYS)
        await asyncio.to_thread(killed, mesh, "checkpoint")
        verifier = await verified(mesh, store)
        assert verifier.start.sequence == 0
        assert verifier.checkpoint is not None
        assert await retention(mesh).step(store)
        verifier = await verified(mesh, store)
        assert (verifier.start.sequence, verifier.place.sequence) == (10, 12)


@pytest.mark.req("AUDIT-11")
async def test_killed_while_it_removes_the_log_is_closed_until_the_start(mesh: Mesh) -> None:
    async with await mesh.store() as store:
        await write(mesh, store, 5, OLD_DAYS)
        await asyncio.to_thread(killed, mesh, "removal")
        assert (await verified(mesh, store)).start.sequence == 10
        before = (await AuditLog(store, mesh.identity).extent()).last
        with pytest.raises(HearthNetError) as caught:
            await asyncio.wait_for(_append(mesh, store, seconds=0.5), SECONDS)
        assert caught.value.code == "partition"
        mesh.restart_server()
        await asyncio.wait_for(store.link.connected(), SECONDS)
        waiting = asyncio.create_task(_append(mesh, store, seconds=SECONDS))
        await streams.ensure(store.js, mesh.home.jetstream)
        await waiting
        verifier = await verified(mesh, store)
        assert (verifier.start.sequence, verifier.place.sequence) == (10, before + 1)


async def _append(mesh: Mesh, store: Store, seconds: float) -> None:
    entry = AuditEntry(kind="decided", call="x", **entry_fields(mesh.identity, 0))
    await AuditLog(store, mesh.identity).append(entry, seconds)


@pytest.mark.req("AUDIT-11")
async def test_entries_removed_without_a_checkpoint_are_missing(mesh: Mesh) -> None:
    """Whoever has the login of the store, or the disk, and not the key."""
    async with await mesh.store() as store:
        await write(mesh, store, 5, OLD_DAYS)
        await retention(mesh).step(store)
        await write(mesh, store, 3, 0)
        await streams.trim_audit(store.js, 13)
        verifier, log = Verifier(mesh.identity.node_id), AuditLog(store, mesh.identity)
        async for batch in log.lines(0, (await log.extent()).last):
            for message in batch:
                verifier.feed(message.data)
        finding = verifier.end(None)
    assert finding is not None
    assert (finding.entry, finding.problem) == (1, "missing")
