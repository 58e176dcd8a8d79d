"""Refused approvals are on record, and a flood of them fills no log."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.service.effects.audit_log import AuditLog
from hearthnet.service.effects.refusal_audit import (
    DAY_MS,
    LONGEST_MS,
    MOST_CALLERS,
    OTHERS,
    SINGLE,
    WINDOW_MS,
    Key,
    RefusalCounter,
    Refusals,
    of_call,
)
from hearthnet.trust.audit_chain import AuditEntry
from hearthnet.trust.authorization.token import Scope, mint
from tests.attacks.attacker import Attacker
from tests.helpers.mesh import Mesh
from tests.helpers.probe import POST, ProbeService, post
from tests.helpers.waiting import wait_for
from tests.service.workers import audited

pytestmark = pytest.mark.req("AUDIT-9")
KEY = Key("n1", "arguments", "unauthorized")
OTHER = Key("n1", "approver", "unauthorized")


def test_the_first_few_have_an_entry_and_the_rest_is_counted() -> None:
    tally = RefusalCounter()
    # The numbers of docs/protocol/audit.md#refused.
    assert [tally.add(KEY, 0) for _ in range(11)] == [True] * 8 + [False] * 3
    assert not tally.add(OTHER, 1), "another check of the same caller is not another budget"
    assert tally.add(Key("n2", "arguments", "unauthorized"), 1)
    assert tally.pop_due(59_999) == []
    assert tally.pop_due(60_000) == [(KEY, 3), (OTHER, 1)]
    assert tally.pop_due(240_000) == [], "each is counted once"


@pytest.mark.req("AUDIT-10", "ATTACK-33")
def test_who_comes_back_after_a_pause_has_no_more_entries_in_that_day() -> None:
    tally, written = RefusalCounter(), 0
    for minute in range(0, DAY_MS, WINDOW_MS):
        tally.pop_due(minute)
        written += sum(tally.add(KEY, minute) for _ in range(SINGLE))
    assert written == SINGLE


def test_who_goes_on_is_told_of_ever_more_rarely_and_who_stops_is_forgotten() -> None:
    tally, now, at = RefusalCounter(), 0, []
    for _ in range(SINGLE):
        tally.add(KEY, now)
    while now < 12 * LONGEST_MS:
        now += 1_000
        tally.add(KEY, now)
        if tally.pop_due(now):
            at.append(now)
    pauses = [after - before for before, after in itertools.pairwise(at)]
    assert pauses[:3] == [2 * WINDOW_MS, 4 * WINDOW_MS, 8 * WINDOW_MS]
    assert pauses[-1] == LONGEST_MS
    assert len(at) < 20, "of tens of thousands"
    assert tally.pop_due(now + LONGEST_MS)
    assert tally.pop_due(DAY_MS) == []
    assert len(tally._windows) == 0
    assert tally.add(KEY, DAY_MS)


def test_very_many_callers_are_counted_together() -> None:
    tally = RefusalCounter()
    for number in range(MOST_CALLERS + 5):
        tally.add(Key(f"n{number}", "run", "unauthorized"), 0)
    assert len(tally._windows) == MOST_CALLERS + 1
    assert tally.pop_due(WINDOW_MS) == [(OTHERS, 5)]
    tally.add(OTHERS, WINDOW_MS)
    assert tally.flush() == [(OTHERS, 1)]
    assert tally.flush() == []


def forged(node: str) -> dict[str, Any]:
    """An approval in form, of which nothing is true."""
    named = dict.fromkeys(("community", "approver", "actor"), node)
    return {
        "id": ids.new_ulid(),
        **named,
        "provider": "*",
        "capability": POST,
        "arguments_digest": "",
        "idempotency_key": "",
        "run": "",
        "tool_call_id": "",
        "time": now_ms(),
        "expires": now_ms() + 60_000,
        "signature": ids.b64(bytes(64)),
    }


async def log_of(mesh: Mesh) -> list[AuditEntry]:
    """The node's log, which is whole."""
    async with await mesh.store() as store:
        found, finding = await audited(mesh, AuditLog(store, mesh.identity))
    assert finding is None
    return found


@pytest.mark.asyncio
async def test_a_flood_is_a_few_entries_also_of_one_that_ends(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the real ladder: what a member may send in a minute, and the provider then stops."""
    mesh.home.config_file.write_text("[limits]\ncapability_soft = 0\ncapability_hard = 0\n")
    service, codes = ProbeService(), Counter[str]()
    async with mesh.hosting(service) as host, await mesh.guest_bus() as bus:
        guest = Attacker(bus)
        view = await guest.target(POST, mesh.identity.node_id)
        token = mint(
            bus.peer.identity,
            subject=bus.peer.node_id,
            audience=bus.peer.community,
            scope=Scope(capabilities=(POST,)),
            now_ms=now_ms(),
            ttl_seconds=300,
        )
        for number in range(3 * SINGLE):
            approval: Any = forged(bus.peer.node_id) if number % 2 else {"id": 7}
            codes[await guest.call(view, POST, post(ids.new_ulid()), token=token, approval=approval)] += 1
        assert set(codes) == {"invalid_signature", "bad_request"}
        monkeypatch.setattr("hearthnet.service.effects.refusal_audit.steady_ms", lambda: 10**15)
        host._records.refusals.tick()
        await wait_for(lambda: _counted(mesh, 2), 20)
        monkeypatch.undo()
        assert await guest.call(
            view, POST, post(ids.new_ulid()), token=token, approval=forged(bus.peer.node_id)
        ) == ("invalid_signature")
    log = await log_of(mesh)
    assert {entry.kind for entry in log} == {"refused"}
    assert sum(entry.count for entry in log) == 3 * SINGLE + 1
    assert len(log) == SINGLE + 2 + 1
    single = [entry for entry in log if entry.call]
    assert {entry.principal for entry in single} == {bus.peer.node_id}
    assert all(entry.token and entry.frame.startswith("blake3:") for entry in single)
    assert not [call for call in service.calls if call.contract.id == POST]


async def _counted(mesh: Mesh, entries: int) -> bool:
    return sum(not entry.call for entry in await log_of(mesh)) >= entries


@pytest.mark.asyncio
async def test_where_the_log_takes_nothing_the_refusal_is_in_the_programs_log(
    mesh: Mesh, caplog: pytest.LogCaptureFixture
) -> None:
    async def full(_entry: AuditEntry) -> None:
        raise HearthNetError("capacity_exceeded", "no room")

    async with await mesh.bus() as bus:
        refusals = Refusals(full, {"node": bus.peer.node_id, "community": bus.peer.community})
        header = bus.peer.sender.header("call", ids.new_ulid(), capability=POST)
        refusals.record(KEY, lambda: of_call(bus.peer, header, None, "blake3:1"))
        await refusals.close()
    assert "no room" in caplog.text
