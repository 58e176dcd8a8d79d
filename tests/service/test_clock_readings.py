"""The right time by the clocks of several homes, some of which lie."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.service.community.clock_readings import ALONE_MS, NEAR_MS, Decision, Reading, decide

HOUR, DAY = 3_600_000, 24 * 3_600_000
NOW = 1_800_000_000_000


def learned(*ahead_ms: int, home_ms: int = NOW, confirmed_ms: int = 0) -> int | None:
    """What a computer at `NOW` learns from homes whose clocks are ahead by so much."""
    readings = [Reading(f"home {number}", one) for number, one in enumerate(ahead_ms)]
    return decide(readings, NOW, home_ms, confirmed_ms).ahead_ms


@pytest.mark.req("CLOCK-3")
@pytest.mark.parametrize("off", [3 * DAY, -3 * DAY, 2 * HOUR])
def test_two_homes_that_agree_are_believed(off: int) -> None:
    for ahead in (learned(off, off + 5_000), learned(off, off + 5_000, off - 5_000)):
        assert ahead is not None
        assert abs(ahead - off) <= 5_000


@pytest.mark.req("CLOCK-3")
def test_a_clock_that_others_agree_with_is_right() -> None:
    assert learned(20_000) == learned(20_000, -20_000) == learned(5 * DAY, 20_000) == 0
    assert learned(5 * DAY, 5 * DAY, 20_000, -9 * DAY) == 0


@pytest.mark.req("CLOCK-3")
def test_homes_that_disagree_decide_nothing() -> None:
    assert learned() is None
    assert learned(5 * DAY, -5 * DAY) is None
    assert learned(DAY, 2 * DAY, 3 * DAY, 4 * DAY) is None
    heard = decide([Reading("a", DAY), Reading("b", 3 * DAY)], NOW, NOW, 0)
    assert heard == Decision(None, 2, DAY, is_confirmed=False)


@pytest.mark.req("CLOCK-3", "ATTACK-125")
def test_one_home_alone_moves_the_time_by_an_hour_at_most() -> None:
    assert learned(ALONE_MS) == ALONE_MS
    assert learned(-ALONE_MS) == -ALONE_MS
    assert learned(ALONE_MS + 1) is None
    assert learned(-3 * DAY) is None


@pytest.mark.req("CLOCK-3")
def test_one_home_is_believed_where_the_clock_cannot_be_right() -> None:
    later = NOW + 5 * DAY
    assert learned(6 * DAY, home_ms=later) == 6 * DAY
    assert learned(4 * DAY, home_ms=later) is None, "before the time that it was already"
    assert learned(500 * DAY, home_ms=later) is None
    assert learned(6 * DAY, 6 * DAY, home_ms=later) == 6 * DAY
    assert learned(10_000, home_ms=later) == 0, "it agrees with the clock: it was set back rightly"


@pytest.mark.req("CLOCK-3", "ATTACK-126")
def test_the_invited_of_one_line_have_one_voice() -> None:
    liars = [Reading("mill", -3 * DAY)] * 50
    honest = [Reading("kitchen", 0), Reading("barn", 1_000)]
    assert decide([*liars, *honest], NOW, NOW, 0).ahead_ms == 0
    assert decide(liars, NOW, NOW, 0) == Decision(None, 1, -3 * DAY, is_confirmed=False)


@pytest.mark.req("CLOCK-4", "ATTACK-126")
def test_nobody_moves_the_time_before_a_confirmed_one() -> None:
    assert learned(-3 * DAY, -3 * DAY, -3 * DAY, confirmed_ms=NOW) is None
    assert learned(-3 * DAY, -3 * DAY, confirmed_ms=NOW - 4 * DAY) == -3 * DAY
    assert learned(0, home_ms=NOW + DAY, confirmed_ms=NOW + DAY) is None, "the clock was set back"


@pytest.mark.req("CLOCK-4", "ATTACK-126")
@given(
    st.lists(st.integers(-NEAR_MS // 4, NEAR_MS // 4), min_size=1, max_size=6),
    st.data(),
)
def test_fewer_liars_than_honest_homes_move_nothing(honest: list[int], data: st.DataObject) -> None:
    lie = st.integers(-400 * DAY, 400 * DAY)
    liars = data.draw(st.lists(lie, max_size=len(honest)))
    found = learned(*liars, *honest)
    assert found == 0 or abs(found or NEAR_MS) <= NEAR_MS
