"""Limits on rates: calls a minute, by a window that slides, and the work that others may cause here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core import rate_limits
from hearthnet.core.rate_limits import WINDOW_MS, LineBudgets, Rates, TokenBucket

ONE, OTHER = ("anna", "1"), ("anna", "2")


@pytest.mark.req("BUDGET-1")
def test_so_many_calls_pass_and_the_next_is_told_how_long_to_wait() -> None:
    window = Rates()
    assert [window.take(ONE, 2, now) for now in (0, 10_000, 20_000)] == [0, 0, 40_000]
    assert window.take(ONE, 2, 59_999) == 1
    assert window.take(ONE, 2, 60_000) == 0
    assert window.take(ONE, 2, 60_001) == 9_999


@pytest.mark.req("BUDGET-1")
def test_every_token_has_a_window_of_its_own() -> None:
    window = Rates()
    assert window.take(ONE, 1, 0) == 0
    assert window.take(OTHER, 1, 0) == 0
    assert window.take(ONE, 1, 0) == WINDOW_MS


@pytest.mark.req("BUDGET-1")
def test_a_share_that_shrank_waits_until_the_window_has_room_for_it() -> None:
    window = Rates()
    assert [window.take(ONE, 3, now) for now in (0, 1_000, 2_000)] == [0, 0, 0]
    assert window.take(ONE, 1, 3_000) == 59_000
    assert window.take(ONE, 1, 62_000) == 0


@pytest.mark.req("BUDGET-1")
@given(st.lists(st.integers(0, 30_000), max_size=60), st.integers(1, 5))
def test_no_minute_holds_more_than_the_share(pauses: list[int], share: int) -> None:
    window, now = Rates(), 0
    passed: list[int] = []
    for pause in pauses:
        now += pause
        wait = window.take(ONE, share, now)
        if wait:
            assert 0 < wait <= WINDOW_MS
        else:
            passed.append(now)
    for begin in passed:
        assert len([one for one in passed if begin <= one < begin + WINDOW_MS]) <= share


@pytest.mark.req("BUDGET-1")
def test_windows_without_calls_are_forgotten_and_the_others_are_not() -> None:
    window = Rates()
    for number in range(rate_limits._MANY):
        window.take(("anna", str(number)), 1, 0)
    assert window.take(ONE, 1, WINDOW_MS - 1) > 0
    window.take(("berta", "x"), 1, WINDOW_MS)
    assert len(window._passed) == 1


@pytest.mark.req("BUDGET-1")
def test_what_can_be_forgotten_is_looked_for_once_a_second() -> None:
    """Each look costs as much as there are windows; with one for every new token it would never end."""
    window = Rates()
    for number in range(rate_limits._MANY):
        window.take(("anna", str(number)), 1, 0)
    window.take(("berta", "1"), 1, WINDOW_MS - 1)
    window.take(("berta", "2"), 1, WINDOW_MS + 500)
    assert len(window._passed) == rate_limits._MANY + 2
    window.take(("berta", "3"), 1, WINDOW_MS + 999)
    assert len(window._passed) == 3


@pytest.mark.req("COMMUNITY-5")
def test_a_burst_is_granted_and_then_the_long_run() -> None:
    allowance = TokenBucket(burst=10, per_second=5)
    assert [allowance.take("anna", 4, 0) for _ in range(3)] == [True, True, False]
    assert allowance.take("anna", 2, 0), "what was refused was not spent"
    assert not allowance.take("anna", 1, 199)
    assert allowance.take("anna", 1, 200)
    assert not allowance.take("anna", 11, 10**9), "more than a burst is never there"
    assert allowance.take("anna", 10, 10**9)


@pytest.mark.req("COMMUNITY-5")
def test_each_node_has_its_own_and_remembering_them_takes_bounded_room() -> None:
    allowance = TokenBucket(burst=1, per_second=0)
    assert allowance.take("anna", 1, 0)
    assert allowance.take("berta", 1, 0)
    assert not allowance.take("anna", 1, 0)
    for number in range(10_000):
        allowance.take(str(number), 1, 0)
    assert len(allowance._left) <= 4_096


@pytest.mark.req("ATTACK-36")
def test_whoever_has_least_left_is_forgotten_last() -> None:
    """Any number of further names gives nobody a new budget."""
    allowance = TokenBucket(burst=10, per_second=0)
    assert allowance.take("anna", 10, 0)
    for number in range(10_000):
        allowance.take(str(number), 1, 0)
    assert not allowance.take("anna", 1, 0)


@pytest.mark.req("COMMUNITY-5")
@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 500)), max_size=60))
def test_no_order_of_asking_gives_more(asked: list[tuple[int, int]]) -> None:
    allowance, now, granted = TokenBucket(burst=30, per_second=10), 0, 0
    for units, pause in asked:
        now += pause
        granted += units * allowance.take("anna", units, now)
    assert granted <= 30 + now / 100


@pytest.mark.req("BUDGET-1")
def test_a_line_shares_the_budget_of_its_last_one() -> None:
    budgets = LineBudgets(8, 1)
    first, second = ("child", "inviter"), ("other child", "inviter")
    assert budgets.take(first, 4, 0)
    assert not budgets.take(first, 1, 0), "half of it is for those below"
    assert budgets.take(("inviter",), 3, 0)
    assert budgets.left(second, 0) == 1
    assert not budgets.take(second, 2, 0)
    assert budgets.take(("somebody",), 8, 0)
    budgets.spend(second, 3, 0)
    assert budgets.left(("inviter",), 0) == -2
    assert budgets.left(("inviter",), 4_000) == 2
    assert budgets.left(first, 4_000) == 2
    assert budgets.left(first, 20_000) == 4
