"""A frame counts once, and only near the time it was made (wire.md, "Frame", freshness)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthnet.wire.replay import WINDOW_MS, ReplayWindow

NOW = 1_795_292_100_000


@pytest.mark.req("WIRE-8")
@pytest.mark.parametrize(
    ("age", "verdict"),
    [
        (0, "fresh"),
        (WINDOW_MS, "fresh"),
        (-WINDOW_MS, "fresh"),
        (WINDOW_MS + 1, "stale"),
        (-WINDOW_MS - 1, "stale"),
        (NOW, "stale"),
        (-NOW, "stale"),
    ],
)
def test_a_frame_is_fresh_for_a_minute_either_way(age: int, verdict: str) -> None:
    assert ReplayWindow().judge("a", NOW - age, NOW) == verdict


@pytest.mark.req("WIRE-8")
def test_a_frame_counts_once() -> None:
    window = ReplayWindow()
    assert [window.judge("a", NOW, NOW) for _ in range(3)] == ["fresh", "replayed", "replayed"]
    assert window.judge("b", NOW, NOW) == "fresh"


@pytest.mark.req("WIRE-8")
def test_a_stale_frame_leaves_no_trace() -> None:
    window = ReplayWindow()
    assert window.judge("a", NOW, NOW + 2 * WINDOW_MS) == "stale"
    assert window.judge("a", NOW, NOW) == "fresh"


ARRIVALS = st.lists(
    st.tuples(
        st.integers(0, 6),  # which frame
        st.integers(-70, 70),  # how far its clock is from ours
        st.integers(0, 50) | st.sampled_from([59, 60, 61, 119, 120, 121, 239, 240, 241, 1000]),  # then, later
    ),
    max_size=60,
)


@pytest.mark.req("WIRE-8")
@settings(max_examples=400)
@given(ARRIVALS)
def test_no_id_is_accepted_twice_while_its_frame_would_be_fresh(arrivals: list[tuple[int, int, int]]) -> None:
    window, now = ReplayWindow(60), NOW
    accepted: dict[str, int] = {}
    made: dict[str, int] = {}
    for number, offset, later in arrivals:
        now += later
        name = str(number)
        if abs(now - made.get(name, now - 1000)) > 60:
            made[name] = now + offset  # its old frame is stale everywhere: the name may be used again
            accepted.pop(name, None)
        verdict = window.judge(name, made[name], now)
        if abs(now - made[name]) > 60:
            assert verdict == "stale"
        elif name in accepted:
            assert verdict == "replayed", f"accepted at {accepted[name] - NOW}, again at {now - NOW}"
        elif verdict == "fresh":
            accepted[name] = now


@pytest.mark.req("WIRE-8")
def test_only_the_ids_of_the_last_four_minutes_are_kept() -> None:
    window, per_second = ReplayWindow(), 20
    most = 0
    for second in range(1200):
        now = NOW + second * 1000
        for number in range(per_second):
            assert window.judge(f"{second}.{number}", now, now) == "fresh"
        most = max(most, len(window._newer) + len(window._older))
    assert most <= per_second * 4 * (WINDOW_MS // 1000)
    window.judge("after a long rest", NOW + 10**8, NOW + 10**8)
    assert len(window._newer) + len(window._older) == 1


@pytest.mark.req("WIRE-8")
def test_a_clock_that_is_set_back_makes_no_frame_count_twice() -> None:
    window = ReplayWindow()
    assert window.judge("a", NOW, NOW) == "fresh"
    for later in range(0, 10 * WINDOW_MS, WINDOW_MS):
        window.judge(f"b{later}", NOW - later, NOW - later)
    assert window.judge("a", NOW, NOW) == "replayed"
