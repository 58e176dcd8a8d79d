"""Every call with side effects is on record before it is carried out and before it is answered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hearthnet import Call
from hearthnet.bus.store import Store
from hearthnet.core import ids, process_lock
from hearthnet.core.canonical_json import digest
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import FULL_BYTES, Home
from hearthnet.core.process_lock import ProcessLock
from hearthnet.service.effects.audit_log import AuditLog
from hearthnet.service.effects.journal import Records
from hearthnet.trust.audit_chain import AuditEntry
from hearthnet.trust.authorization.token import decode
from tests.helpers.mesh import Mesh
from tests.helpers.probe import POST, QUERY, ProbeService, post, query
from tests.helpers.tcp_proxy import tcp_proxy
from tests.helpers.waiting import wait_for
from tests.service.effect_worker import INGEST
from tests.service.workers import RUN, approval, audited, body, grant, ingest, token, working

pytestmark = pytest.mark.asyncio


async def entries(mesh: Mesh, store: Store) -> list[AuditEntry]:
    """The node's audit log, which is found whole."""
    found, finding = await audited(mesh, AuditLog(store, mesh.identity))
    assert finding is None
    return found


def paired(log: list[AuditEntry]) -> list[tuple[AuditEntry, AuditEntry | None]]:
    """Each call that began, with its end."""
    ends = {entry.began: entry for entry in log if entry.kind == "ended"}
    return [(entry, ends.get(entry.sequence)) for entry in log if entry.kind == "began"]


class _Looking(ProbeService):
    """Looks at the log before its effect."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.mesh = mesh
        self.seen: list[AuditEntry] = []

    async def look(self) -> None:
        """Remembers what is on record."""
        async with await self.mesh.store() as store:
            self.seen = await entries(self.mesh, store)


@pytest.mark.req("AUDIT-4")
async def test_a_call_is_on_record_before_its_effect_and_before_its_answer(mesh: Mesh) -> None:
    service = _Looking(mesh)
    asked = post(ids.new_ulid())
    async with mesh.hosting(service) as host, await mesh.guest_bus() as bus, await mesh.store() as store:
        append = _appending(service)
        service.events.append = append  # type: ignore[union-attr,method-assign]
        end, ending, go_on = host._records.end, asyncio.Event(), asyncio.Event()

        async def held(*given: Any) -> None:
            ending.set()
            await go_on.wait()
            await end(*given)

        host._records.end = held  # type: ignore[method-assign,assignment]
        asking = asyncio.create_task(bus.call(POST, asked))
        await ending.wait()
        # Its answer comes behind whatever was answered before.
        assert (await bus.call(QUERY, query())).output
        assert not asking.done()
        go_on.set()
        reply = await asking
        log = await entries(mesh, store)
    assert [entry.kind for entry in service.seen] == ["began"]
    began, ended = log
    assert service.seen == [began]
    assert (began.service, began.capability, began.instance) == ("probe", POST, host.peer.instance)
    assert began.caller == began.principal == bus.peer.node_id
    assert (began.digest, began.idempotency_key) == (digest(asked), asked["input"]["client_id"])
    assert (began.token, began.run, began.approval, began.grant) == ("", "", "", "")
    assert (ended.began, ended.call, ended.code, ended.outcome) == (1, began.call, "", digest(reply.output))


def _appending(service: _Looking) -> Any:
    events = service.events
    assert events is not None
    append = events.append

    async def look_first(call: Call[Any, Any], event_type: str, data: dict[str, Any]) -> Any:
        await service.look()
        return await append(call, event_type, data)

    return look_first


@pytest.mark.req("AUDIT-4")
async def test_what_only_reads_is_not_on_record(mesh: Mesh) -> None:
    async with mesh.hosting(ProbeService()), await mesh.bus() as bus, await mesh.store() as store:
        await bus.call(QUERY, query())
        assert await entries(mesh, store) == []


@pytest.mark.req("AUDIT-4")
async def test_how_a_call_ended_is_on_record_whatever_it_was(mesh: Mesh) -> None:
    service, started = ProbeService(), asyncio.Event()

    async def behave(call: Call[Any, Any], event_type: str, data: dict[str, Any]) -> Any:
        if data["title"] == "stay":
            started.set()
            await asyncio.Event().wait()
        raise ValueError if data["title"] == "fail" else HearthNetError("unauthorized", "no")

    async with mesh.hosting(service) as host, await mesh.store() as store:
        service.events.append = behave  # type: ignore[union-attr,method-assign]
        async with await mesh.bus() as bus:
            for title in ("refuse", "fail"):
                with pytest.raises(HearthNetError):
                    await bus.call(POST, post(ids.new_ulid(), title))
            with pytest.raises(HearthNetError):
                await bus.call(POST, post(ids.new_ulid(), "stay"), timeout_seconds=2)
            await wait_for(lambda: host.in_flight == 0, what="the calls to end")
            started.clear()
            staying = asyncio.create_task(bus.call(POST, post(ids.new_ulid(), "stay"), timeout_seconds=30))
            await started.wait()
            await host.close(drain_seconds=0)
            with pytest.raises(HearthNetError):
                await staying
        codes = [end.code for _, end in paired(await entries(mesh, store)) if end is not None]
    assert codes == ["unauthorized", "internal_error", "timeout", "partition"]


@pytest.mark.req("AUDIT-4")
async def test_under_which_token_run_and_consent_is_on_record(mesh: Mesh) -> None:
    with working(mesh) as workers:
        async with await mesh.bus() as bus:
            await workers.start(bus)
            key, granted = ids.new_ulid(), grant(bus)
            yes, lent = approval(bus, body(), key), token(bus)
            await bus.call(INGEST, body(), token=lent, run=RUN, approval=yes, idempotency_key=key)
            await ingest(bus, body(), grant=granted, use=3)
        (first, end), (second, _) = paired(await workers.entries())
    assert end is not None
    assert end.code == ""
    assert (first.approval, first.run, first.idempotency_key) == (yes.id, RUN, key)
    assert (second.grant, second.use, second.approval) == (granted.id, 3, "")
    assert first.token == decode(lent).jti != second.token


@pytest.mark.req("AUDIT-5")
async def test_the_processes_of_a_node_share_one_chain(mesh: Mesh) -> None:
    with working(mesh) as workers:
        async with await mesh.bus() as bus, await mesh.bus() as other:
            await workers.start(bus, 2)
            calls = [ingest(each, body(document=str(n))) for n in range(10) for each in (bus, other)]
            refused = await asyncio.gather(*calls, return_exceptions=True)
            # Under a token there is no effect without consent, and nothing to put on record.
            assert {error.code for error in refused if isinstance(error, HearthNetError)} == {"unauthorized"}
            granted = grant(bus, max_uses=30)
            done = [ingest(bus, body(document=str(n)), grant=granted, use=n + 1) for n in range(30)]
            replies = await asyncio.gather(*done)
        log = paired(await workers.entries())
    assert len(log) == 30
    assert all(end is not None and end.code == "" for _, end in log)
    assert {entry.instance for entry, _ in log} == {reply.instance for reply in replies}
    assert len({reply.instance for reply in replies}) == 2


@pytest.mark.req("AUDIT-6")
async def test_calls_that_a_death_cut_off_are_ended_by_the_next_process(mesh: Mesh) -> None:
    with working(mesh) as workers:
        async with await mesh.bus() as bus:
            await workers.start(bus)
            key = ids.new_ulid()
            await ingest(bus, body(), approval=approval(bus, body(), key), idempotency_key=key)
            other = ids.new_ulid()
            given: dict[str, Any] = {"idempotency_key": other, "timeout_seconds": 1.5}
            with pytest.raises(HearthNetError):
                await ingest(bus, body("die"), approval=approval(bus, body("die"), other), **given)
            assert [end is None for _, end in paired(await workers.entries())] == [False, True]
            await workers.start(bus)
        assert len(process_lock.everybody(mesh.home)) == 1
        [(_, whole), (began, settled)] = paired(await workers.entries())
    assert whole is not None
    assert settled is not None
    assert (settled.code, settled.outcome) == ("outcome_unknown", "")
    assert settled.instance != began.instance
    assert process_lock.everybody(mesh.home) == []


@pytest.mark.req("AUDIT-6")
@pytest.mark.parametrize("found", [True, False])
async def test_the_real_outcome_is_put_on_record_where_it_is_known(mesh: Mesh, found: bool) -> None:
    """A process that died after an event was appended and before it answered."""
    dead, asked = await _died_before_its_answer(mesh, ProbeService(), appends=found)
    async with mesh.hosting(ProbeService()), await mesh.store() as store, await mesh.bus() as bus:
        [(began, settled)] = paired(await entries(mesh, store))
        assert settled is not None
        assert began.instance == dead
        if found:
            again = await bus.call(POST, asked)
            assert again.meta["repeated"] is True
            assert (settled.code, settled.outcome) == ("", digest(again.output))
        else:
            assert (settled.code, settled.outcome) == ("outcome_unknown", "")


async def _died_before_its_answer(mesh: Mesh, service: ProbeService, *, appends: bool) -> tuple[str, Any]:
    """The instance of a process that left a call open, as if it had been killed, and that call's body."""
    asked = post(ids.new_ulid())
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        records, stuck = host._records, asyncio.Event()

        async def never(*_: Any) -> None:
            stuck.set()
            await asyncio.Event().wait()

        records.end = never  # type: ignore[method-assign,assignment]
        if not appends:
            service.events.append = never  # type: ignore[union-attr,method-assign]
        asking = asyncio.create_task(bus.call(POST, asked))
        await stuck.wait()
        asking.cancel()
    return host.peer.instance, asked


@pytest.mark.req("AUDIT-7")
async def test_nothing_is_done_that_cannot_be_put_on_record(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = ProbeService()
    monkeypatch.setattr("hearthnet.service.effects.jetstream_records._LOOK_SECONDS", -1.0)
    async with (
        tcp_proxy(mesh.server.url) as proxy,
        mesh.hosting(service, store_url=proxy.url) as host,
        await mesh.bus() as bus,
        await mesh.store() as store,
    ):
        await bus.call(POST, post(ids.new_ulid()))
        monkeypatch.setattr(Home, "free_bytes", lambda home: FULL_BYTES - 1)
        await _refused(bus.call(POST, post(ids.new_ulid())), "capacity_exceeded")
        monkeypatch.undo()
        # The host's connection to its records breaks. The caller asks again for as long as it has time.
        proxy.lose("au.entry", 99, written=False)
        await _refused(bus.call(POST, post(ids.new_ulid()), timeout_seconds=2), "partition", "timeout")
        await wait_for(lambda: host.in_flight == 0, what="the host to give it up, too")
        assert proxy.lost
        proxy.lose("au.entry", 0, written=False)
        await bus.call(POST, post(ids.new_ulid()))
        await entries(mesh, store)
    assert len(service.calls) == 2


async def _refused(work: Any, *codes: str) -> None:
    with pytest.raises(HearthNetError) as caught:
        await work
    assert caught.value.code in codes


@pytest.mark.req("AUDIT-4", "ATTACK-33")
@pytest.mark.parametrize("kind", ["began", "ended"])
async def test_a_call_that_is_given_up_while_it_is_put_on_record_has_an_end(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Else retention would stop at it for as long as the process lives."""
    append, arrived = AuditLog.append, asyncio.Event()

    async def late(log: AuditLog, entry: AuditEntry, seconds: float, **given: Any) -> int:
        number = await append(log, entry, seconds, **given)
        if entry.kind == kind and not arrived.is_set():
            arrived.set()
            await asyncio.sleep(0.2)
        return number

    monkeypatch.setattr(AuditLog, "append", late)
    async with mesh.hosting(ProbeService()) as host, await mesh.bus() as bus, await mesh.store() as store:
        asking = asyncio.create_task(bus.call(POST, post(ids.new_ulid())))
        await arrived.wait()
        [running] = host._running.values()
        running.stop()
        await asyncio.gather(asking, return_exceptions=True)
        await wait_for(lambda: not host._records._open, what="the end of every call")
        assert all(end is not None for _, end in paired(await entries(mesh, store)))


@pytest.mark.req("AUDIT-7")
async def test_what_is_not_fit_to_be_put_on_record_is_refused(mesh: Mesh) -> None:
    service = ProbeService()
    async with mesh.hosting(service), await mesh.bus() as bus, await mesh.store() as store:
        wanted: tuple[dict[str, Any], ...] = ({"idempotency_key": ids.new_ulid()}, {"run": "x" * 65})
        for given in wanted:
            await _refused(bus.call(POST, post(ids.new_ulid()), **given), "bad_request")
        assert await entries(mesh, store) == []
    assert service.calls == []


@pytest.mark.req("AUDIT-6")
async def test_what_a_service_left_open_that_runs_no_more_is_settled_by_any(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _died_before_its_answer(mesh, ProbeService(), appends=False)
    monkeypatch.setattr(ProbeService, "name", "another")
    async with await mesh.store() as store:
        async with mesh.hosting(ProbeService()):
            # Whether its own service comes back is not known here.
            assert [end is None for _, end in paired(await entries(mesh, store))] == [True]
        with mesh.published():
            monkeypatch.setattr(Records, "_settle", _unable)
            async with mesh.hosting(ProbeService()):
                assert [end is None for _, end in paired(await entries(mesh, store))] == [True]
            monkeypatch.undo()
            monkeypatch.setattr(ProbeService, "name", "another")
            async with mesh.hosting(ProbeService()):
                [(_, settled)] = paired(await entries(mesh, store))
    assert settled is not None
    assert settled.code == "outcome_unknown"


async def _unable(*_: Any) -> None:
    raise HearthNetError("partition", "not now")


@pytest.mark.req("AUDIT-7")
async def test_an_end_that_cannot_be_put_on_record_is_not_told_as_done(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = ProbeService()
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        asked, end = post(ids.new_ulid()), host._records.end

        async def fail(*_: Any) -> None:
            raise HearthNetError("partition", "no")

        host._records.end = fail  # type: ignore[method-assign,assignment]
        await _refused(bus.call(POST, asked), "outcome_unknown")
        host._records.end = end  # type: ignore[method-assign]
        assert (await bus.call(POST, asked)).meta["repeated"] is True


@pytest.mark.req("AUDIT-5")
async def test_an_entry_is_appended_once_through_a_server_that_dies(mesh: Mesh) -> None:
    async with mesh.hosting(ProbeService()) as host, await mesh.bus() as bus:
        asking = [asyncio.create_task(bus.call(POST, post(ids.new_ulid()))) for _ in range(6)]
        await wait_for(lambda: any(task.done() for task in asking), what="the first answer")
        mesh.restart_server()
        await asyncio.gather(*asking)
        # What was asked again may have had its answer before the first attempt has ended.
        await wait_for(lambda: host.in_flight == 0, what="every attempt to end")
        async with await mesh.store() as store:
            log = await entries(mesh, store)
    assert len(paired(log)) >= 6
    assert all(end is not None for _, end in paired(log))
    assert len({(entry.kind, entry.call) for entry in log}) == len(log)


@pytest.mark.req("AUDIT-6")
async def test_who_lives_is_known_by_a_lock(mesh: Mesh) -> None:
    await asyncio.to_thread(_check_presence, mesh.home)


def _check_presence(home: Home) -> None:
    assert not process_lock.lives(home, "nobody00")
    assert process_lock.everybody(home) == []
    one, two = ProcessLock(home, "aaaaaaaa", "market"), ProcessLock(home, "bbbbbbbb", "market")
    assert process_lock.count(home, "market") == 2
    assert process_lock.count(home, "rag") == 0
    path = process_lock.folder(home) / "bbbbbbbb"
    with process_lock.settling(path) as dead:
        assert dead is None
    two.note(7)
    two.close(settled=False)
    assert process_lock.lives(home, "aaaaaaaa")
    assert not process_lock.lives(home, "bbbbbbbb")
    with process_lock.settling(path) as dead:
        assert dead is not None
        assert (dead.instance, dead.mark.service, dead.mark.since) == ("bbbbbbbb", "market", 7)
        with process_lock.settling(path) as nobody:
            assert nobody is None
    path.write_bytes(b"")
    with process_lock.settling(path) as dead:
        assert dead is not None
        assert dead.mark.since == 0
    path.unlink()
    with process_lock.settling(path) as dead:
        assert dead is None
    one.close(settled=True)
    assert process_lock.everybody(home) == []
