"""The budget of another node's frames, charged before they are opened."""

from __future__ import annotations

import pytest

from hearthnet.bus.session import frame_budget
from hearthnet.bus.session.frame_budget import UNIT_BYTES, FrameBudget
from hearthnet.contracts.registry import contracts
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol.frame import MAX_FOREIGN_BYTES
from tests.helpers.mesh import Mesh
from tests.helpers.probe import QUERY, ProbeService, query

OWN, OTHER, THIRD = (ids.node_id(bytes([number]) * 32) for number in (1, 2, 3))


def _subject(sender: str, family: str = "call") -> str:
    return f"hn.{family}.{ids.token_form(sender)}.{ids.token_form(OWN)}.a1b2c3d4.rag.query.v1"


@pytest.mark.req("RATE-3")
@pytest.mark.parametrize("family", ["call", "ctl", "rep", "find", "adv"])
def test_each_other_node_has_its_units_at_once_and_in_the_long_run(
    family: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0
    monkeypatch.setattr(frame_budget, "steady_ms", lambda: now)
    budget = FrameBudget(OWN, family, 10, 5)
    other = _subject(OTHER, family)
    assert [budget.admits(other, 100) for _ in range(12)] == [True] * 10 + [False] * 2
    assert budget.admits(_subject(THIRD, family), 100), "each for itself"
    assert all(budget.admits(_subject(OWN, family), 100) for _ in range(50))
    assert budget.dropped == 2
    assert [record.message for record in caplog.records] == [
        f"{ids.token_form(OTHER)[:8]} sends more or larger {family} frames than are read; "
        "1 were dropped unread so far"
    ], "one line, not one for each"
    now = 1_000
    assert [budget.admits(other, 100) for _ in range(6)] == [True] * 5 + [False]
    now = 2_000
    assert [budget.admits(other, 2 * UNIT_BYTES) for _ in range(2)] == [True, False], "16 KiB are a unit"


@pytest.mark.req("RATE-3")
def test_nodes_of_one_account_share_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_budget, "steady_ms", lambda: 0)
    budget = FrameBudget(OWN, "call", 10, 5, {OTHER: "both", THIRD: "both"}.__getitem__)
    other, third = _subject(OTHER), _subject(THIRD)
    assert all(budget.admits(each, 100) for each in [other, third] * 4)
    budget.charge(third, 2)
    assert not budget.admits(other, 100)


@pytest.mark.req("RATE-3")
def test_what_was_requested_is_given_back_and_what_is_inside_is_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frame_budget, "steady_ms", lambda: 0)
    budget, other = FrameBudget(OWN, "rep", 10, 5), _subject(OTHER, "rep")
    budget.charge(other, 5)
    for _ in range(50):
        assert budget.admits(other, 3 * UNIT_BYTES)
        budget.refund(other, 3 * UNIT_BYTES)
    assert budget.admits(other, 0)
    budget.charge(other, 4)
    assert not budget.admits(other, 0)


@pytest.mark.req("RATE-3")
@pytest.mark.parametrize("burst", [0, 1_000])
def test_a_frame_over_a_mebibyte_is_read_only_if_it_was_requested(burst: int) -> None:
    call, reply = FrameBudget(OWN, "call", burst, 100), FrameBudget(OWN, "rep", burst, 100)
    assert call.admits(_subject(OTHER), MAX_FOREIGN_BYTES)
    call.charge(_subject(OTHER), 10_000 if burst == 0 else 0)
    assert call.admits(_subject(OTHER), 1)
    assert not call.admits(_subject(OTHER), MAX_FOREIGN_BYTES + 1)
    assert call.admits(_subject(OWN), MAX_FOREIGN_BYTES + 1)
    assert reply.admits(_subject(OTHER, "rep"), MAX_FOREIGN_BYTES + 1)


@pytest.mark.req("RATE-3")
@pytest.mark.asyncio
async def test_a_call_too_large_for_another_node_is_not_sent(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(contracts().get(QUERY).__dict__, "request_limit", 2 * MAX_FOREIGN_BYTES)
    body = {**query(), "more": "x" * MAX_FOREIGN_BYTES}
    async with mesh.hosting(ProbeService()), await mesh.bus() as own, await mesh.guest_bus() as guest:
        await guest.call(QUERY, query())
        with pytest.raises(HearthNetError, match=r"takes 1048576; send less in one call") as caught:
            await guest.call(QUERY, body)
        assert (caught.value.code, caught.value.details) == (
            "payload_too_large",
            {"limit": MAX_FOREIGN_BYTES},
        )
        await own.call(QUERY, body)
