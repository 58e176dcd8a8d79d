"""What every store of runs keeps to: in memory, and in the node's JetStream (docs/decisions/0070)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from hearthnet.agent.persistence import jetstream_store
from hearthnet.agent.persistence.jetstream_store import StoredRuns
from hearthnet.agent.persistence.run_store import RunStore, StoredDocument, Superseded
from hearthnet.agent.tools.types import Approve, Deny
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.service.effects.audit_log import AuditLog
from hearthnet.service.effects.jetstream_records import DiskGuard
from hearthnet.trust.audit_chain import AuditEntry
from tests.agent.keeping import QUESTION, WANTS, Node
from tests.helpers.memory_runs import MemoryRuns
from tests.helpers.mesh import Mesh, start_mesh
from tests.helpers.tcp_proxy import tcp_proxy
from tests.helpers.waiting import wait_for
from tests.service.workers import audited

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture(params=["memory", "stream"])
async def runs(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunStore]:
    if request.param == "memory":
        yield MemoryRuns()
        return
    mesh = await start_mesh(tmp_path)
    async with await mesh.store() as store:
        yield StoredRuns(store, mesh.identity)
    mesh.server.stop()


def decided(call: str, run: str, kind: Any = "decided", node: str = "") -> AuditEntry:
    return AuditEntry(
        node=node or "ed25519:x",
        community="c",
        sequence=0,
        previous="",
        time=1,
        kind=kind,
        call=call,
        instance="i",
        run=run,
    )


@pytest.mark.req("RUN-5", "RUN-7")
async def test_a_run_is_replaced_only_by_who_knows_what_stands_there(runs: RunStore) -> None:
    run, other = ids.new_ulid(), ids.new_ulid()
    assert await runs.load(run) is None
    first = await runs.save(run, b"one", 0)
    assert await runs.load(run) == StoredDocument(b"one", first)
    with pytest.raises(Superseded):
        await runs.save(run, b"two", 0)
    second = await runs.save(run, b"three", first)
    assert second > first
    with pytest.raises(Superseded):
        await runs.save(run, b"four", first)
    assert await runs.load(run) == StoredDocument(b"three", second)
    await runs.save(other, b"x", 0)
    assert sorted(await runs.runs()) == sorted([run, other])


@pytest.mark.req("SESS-18")
async def test_a_mark_grows_with_what_is_saved_and_decided(runs: RunStore) -> None:
    run = ids.new_ulid()
    marks = [await runs.version()]
    await runs.save(run, b"one", 0)
    marks.append(await runs.version())
    assert marks[-1] == await runs.version()
    await runs.save_decision(run, ids.new_ulid(), b"yes")
    marks.append(await runs.version())
    await runs.save(ids.new_ulid(), b"two", 0)
    marks.append(await runs.version())
    assert marks == sorted(set(marks))


@pytest.mark.req("RUN-7")
async def test_of_many_who_save_at_once_one_does(runs: RunStore) -> None:
    run = ids.new_ulid()
    saving = (runs.save(run, b"%d" % number, 0) for number in range(8))
    results = await asyncio.gather(*saving, return_exceptions=True)
    (winner,) = [number for number, one in enumerate(results) if isinstance(one, int)]
    assert sum(isinstance(one, Superseded) for one in results) == 7
    kept = await runs.load(run)
    assert kept is not None
    assert (kept.data, kept.revision) == (b"%d" % winner, results[winner])


@pytest.mark.req("RUN-6")
async def test_a_decision_is_written_once(runs: RunStore) -> None:
    run = ids.new_ulid()
    assert await runs.load_decision(run, "a") is None
    stands = await asyncio.gather(*(runs.save_decision(run, "a", b"%d" % number) for number in range(5)))
    assert len(set(stands)) == 1
    assert await runs.save_decision(run, "b", b"yes") == b"yes"
    assert await runs.load_decision(run, "a") == stands[0]
    assert await runs.load_decision(run, "b") == b"yes"
    assert await runs.runs() == []


@pytest.mark.req("RUN-6")
async def test_who_watches_a_run_is_woken_until_it_stops(runs: RunStore) -> None:
    run, woken, other = ids.new_ulid(), [], []
    stop = await runs.watch(run, lambda: woken.append(1))
    stop_other = await runs.watch(run, lambda: other.append(1))
    await runs.notify(ids.new_ulid())
    await runs.notify(run)
    await wait_for(lambda: woken and other, 20)
    await stop()
    await runs.notify(run)
    await wait_for(lambda: len(other) == 2, 20)
    await runs.save(run, b"one", 0)
    assert (woken, other) == ([1], [1, 1])
    await stop_other()


@pytest.mark.req("RUN-10")
async def test_an_entry_is_on_record_once_however_many_say_it(runs: RunStore) -> None:
    run = ids.new_ulid()
    since = await runs.audit_position()
    numbers = await asyncio.gather(*(runs.append_audit(decided("c", run), since) for _ in range(4)))
    assert set(numbers) == {since + 1}
    assert await runs.append_audit(decided("d", run), since) == since + 2
    await runs.append_audit(decided("e", "another"), since)
    assert [entry.call for entry in await runs.audit_entries(run, since)] == ["c", "d"]
    assert await runs.append_audit(decided("c", run), since + 3) == since + 4, "another one, later"


async def test_an_end_is_found_with_its_beginning() -> None:
    runs = MemoryRuns()
    began = await runs.append_audit(decided("c", "r", "began"), 0)
    await runs.append_audit(msgspec.structs.replace(decided("c", "", "ended"), began=began), 0)
    await runs.append_audit(msgspec.structs.replace(decided("x", "", "ended"), began=99), 0)
    assert [entry.kind for entry in await runs.audit_entries("r", 0)] == ["began", "ended"]


# --- only JetStream


@pytest.mark.req("RUN-10")
async def test_two_stores_note_a_decision_once_among_other_entries(mesh: Mesh) -> None:
    run = ids.new_ulid()
    async with await mesh.store() as one, await mesh.store() as two:
        first, second = StoredRuns(one, mesh.identity), StoredRuns(two, mesh.identity)
        log = AuditLog(one, mesh.identity)
        since = await first.audit_position()
        node = mesh.identity.node_id
        other = decided("o", "other", "decided", node)

        async def others() -> None:
            for number in range(5):
                await log.append(msgspec.structs.replace(other, call=f"o{number}"), 20)

        entry = decided("c", run, "decided", node)
        saying = [store.append_audit(entry, since) for store in (first, second) for _ in range(3)]
        await asyncio.gather(others(), *saying)
        assert [one.call for one in await first.audit_entries(run, since)] == ["c"]
        found, finding = await audited(mesh, log)
        assert finding is None
        assert len(found) == 6


@pytest.mark.req("RUN-5")
@pytest.mark.parametrize("written", [True, False])
async def test_a_lost_answer_is_settled_by_reading(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    """The connection to the server breaks behind the message, or before it."""
    run = ids.new_ulid()
    async with tcp_proxy(mesh.server.url) as proxy, await mesh.store(url=proxy.url) as store:
        runs = StoredRuns(store, mesh.identity)
        proxy.lose("rn.run.", 1, written=written)
        revision = await runs.save(run, b"one", 0)
        assert proxy.lost == 1
        assert await runs.load(run) == StoredDocument(b"one", revision)
        monkeypatch.setattr(jetstream_store, "WRITE_SECONDS", 0.3)
        proxy.lose("rn.run.", 99, written=False)
        with pytest.raises(HearthNetError, match="the store of runs did not answer in time") as caught:
            await runs.save(run, b"two", revision)
        assert caught.value.code == "partition"
        await store.link.connected()


@pytest.mark.req("RUN-5")
async def test_what_does_not_fit_is_refused_with_the_reason(mesh: Mesh, tmp_path: Path) -> None:
    class Full(DiskGuard):
        async def check(self, share: float = 1.0) -> None:
            raise HearthNetError("capacity_exceeded", "the disk is full")

    async with await mesh.store() as store:
        runs = StoredRuns(store, mesh.identity)
        with pytest.raises(HearthNetError, match=r"bytes to save, the server takes \d+; ask with") as caught:
            await runs.save(ids.new_ulid(), b"x" * (store.link.client.max_payload + 1), 0)
        assert caught.value.code == "payload_too_large"
        full = StoredRuns(store, mesh.identity, Full(Home.resolve(tmp_path)))
        with pytest.raises(HearthNetError, match="disk is full"):
            await full.save(ids.new_ulid(), b"x", 0)
        assert await runs.runs() == []


@pytest.mark.req("RUN-5", "RUN-10")
async def test_runs_and_decisions_outlive_the_server(mesh: Mesh) -> None:
    async with await mesh.store() as store:
        home = Node(StoredRuns(store, mesh.identity), WANTS)
        home.bus.peer.identity = mesh.identity
        run = (await home.executor().run_chat_with_tools(QUESTION))["run"]
        await home.saved().decide(run, "p", Approve(), via="before")
        mesh.restart_server()
        await store.link.connected()
        taken = await home.saved().decide(run, "p", Deny(), via="after")
        assert taken.repeated
        assert taken.signed.via == "before"
        assert [entry.code for entry in (await home.saved().page(run)).log] == ["approved"]


@pytest.mark.req("RUN-6")
async def test_who_watches_looks_again_when_the_server_is_back(mesh: Mesh) -> None:
    """What was told meanwhile was not heard."""
    async with await mesh.store() as store:
        runs, woken = StoredRuns(store, mesh.identity), []
        stop = await runs.watch(ids.new_ulid(), lambda: woken.append(1))
        assert woken == []
        mesh.restart_server()
        await wait_for(lambda: woken, 20)
        await stop()


@pytest.mark.req("RUN-5")
async def test_a_store_that_is_gone_says_so(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jetstream_store, "READ_SECONDS", 0.3)
    store = await mesh.store()
    runs = StoredRuns(store, mesh.identity)
    stop = await runs.watch("r", lambda: None)
    await store.close()
    await stop()
    with pytest.raises(HearthNetError, match="the connection to the server was closed") as caught:
        await runs.load(ids.new_ulid())
    assert caught.value.code == "partition"
    with pytest.raises(HearthNetError, match="the store of runs does not answer") as caught:
        await runs.notify("r")
    assert caught.value.code == "partition"
