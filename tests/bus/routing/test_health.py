"""The window of a process's last calls: median, success, quarantine, probe."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.bus.routing.health import FEWEST, QUARANTINE_MS, UNKNOWN_MS, WINDOW, Health
from hearthnet.core.errors import CODES


def _after(*calls: tuple[str, float]) -> Health:
    health = Health()
    for code, ms in calls:
        health.begin()
        health.end(code, ms, 0)
    return health


@pytest.mark.req("BUS-24")
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60_000)), max_size=260))
def test_the_last_hundred_calls_count_and_no_others(calls: list[tuple[bool, int]]) -> None:
    health = Health()
    for worked, ms in calls:
        health.end("" if worked else "internal_error", ms, 0)
    last = calls[-WINDOW:]
    assert len(health) == len(last)
    if last:
        assert health.success == pytest.approx(sum(worked for worked, _ in last) / len(last))
        assert health.p50_ms == pytest.approx(statistics.median_low([ms for _, ms in last]), rel=0.036)
    else:
        assert (health.success, health.p50_ms) == (1.0, UNKNOWN_MS)


@pytest.mark.req("BUS-24")
def test_up_to_32_ms_are_exact_and_a_minute_is_the_longest() -> None:
    for ms in range(33):
        assert _after(("", ms + 0.9)).p50_ms == ms
    assert _after(("", 10**9)).p50_ms == 65_536


@pytest.mark.req("BUS-24")
@pytest.mark.parametrize("code", sorted(CODES))
def test_what_is_the_processs_fault_counts_against_it_and_nothing_else(code: str) -> None:
    """What is asked wrongly, not allowed, not there or too much says nothing about who says so."""
    counted = _after((code, 1_000))
    blamed = code in {"timeout", "partition", "internal_error", "not_implemented", "invalid_signature"}
    assert (len(counted), counted.failures) == ((1, 1) if blamed else (0, 0))


@pytest.mark.req("BUS-24")
def test_who_waits_for_less_time_than_an_answer_takes_learns_nothing() -> None:
    assert len(_after(("timeout", UNKNOWN_MS))) == 0
    assert len(_after(("timeout", UNKNOWN_MS + 1))) == 1
    known = _after(("", 2_000), ("timeout", 1_000), ("timeout", 2_500))
    assert (len(known), known.failures) == (2, 1)


@pytest.mark.req("BUS-24")
def test_a_call_that_is_given_up_counts_for_nothing() -> None:
    health = Health()
    health.end(None, 50, 0)
    assert len(health) == 0


@pytest.mark.req("BUS-24")
def test_under_half_of_enough_calls_is_too_few() -> None:
    few = _after(*[("partition", 5.0)] * (FEWEST - 1))
    assert few.may_be_called
    few.end("partition", 5, 100)
    assert (few.state, few.until_ms) == ("shut", 100 + QUARANTINE_MS)
    assert _after(*[("", 5.0), ("timeout", 900.0)] * 60).may_be_called, "half of them is enough"
    assert not _after(*[("", 5.0)] * 100, *[("partition", 5.0)] * 51).may_be_called


@pytest.mark.req("BUS-24")
@pytest.mark.parametrize(
    ("code", "state"), [("", "well"), ("partition", "shut"), ("capacity_exceeded", "due"), (None, "due")]
)
def test_one_call_tries_it_after_its_time(code: str | None, state: str) -> None:
    health = _after(*[("internal_error", 5.0)] * FEWEST)
    assert not health.is_due(QUARANTINE_MS - 1)
    assert health.is_due(QUARANTINE_MS)
    assert not health.is_due(QUARANTINE_MS), "it is so only once"
    assert (len(health), health.p50_ms, health.may_be_called) == (0, UNKNOWN_MS, True)
    health.begin()
    assert not health.may_be_called
    health.end(code, 5, QUARANTINE_MS)
    assert health.state == state
