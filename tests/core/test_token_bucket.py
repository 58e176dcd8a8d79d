"""How much work others may cause here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core.rate_limits import TokenBucket


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


@pytest.mark.req("COMMUNITY-5")
@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 500)), max_size=60))
def test_no_order_of_asking_gives_more(asked: list[tuple[int, int]]) -> None:
    allowance, now, granted = TokenBucket(burst=30, per_second=10), 0, 0
    for units, pause in asked:
        now += pause
        granted += units * allowance.take("anna", units, now)
    assert granted <= 30 + now / 100
