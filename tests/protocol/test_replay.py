"""A frame counts once, and only near the time it was made.

See: docs/protocol/frames.md#replay-window, docs/protocol/frames.md#clock-rules.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthnet.protocol.replay import MOST_IDS, STRANGERS, WINDOW_MS, ReplayWindow

NOW = 1_795_292_100_000
WHO = "ada"


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
    assert ReplayWindow().check(WHO, "a", NOW - age, NOW) == verdict


@pytest.mark.req("WIRE-8")
def test_a_frame_counts_once() -> None:
    window = ReplayWindow()
    assert [window.check(WHO, "a", NOW, NOW) for _ in range(3)] == ["fresh", "replayed", "replayed"]
    assert window.check(WHO, "b", NOW, NOW) == "fresh"


@pytest.mark.req("WIRE-8")
def test_a_stale_frame_leaves_no_trace() -> None:
    window = ReplayWindow()
    assert window.check(WHO, "a", NOW, NOW + 2 * WINDOW_MS) == "stale"
    assert window.check(WHO, "a", NOW, NOW) == "fresh"


ARRIVALS = st.lists(
    st.tuples(
        st.sampled_from(["ada", "ben", STRANGERS]),
        st.integers(0, 6),  # which frame
        st.integers(-70_000, 70_000),  # how far its clock is from ours
        st.integers(0, 50_000) | st.sampled_from([59_999, 60_000, 60_001, 120_000, 240_000, 10**6]),  # later
    ),
    max_size=80,
)


@pytest.mark.req("WIRE-8")
@settings(max_examples=400)
@given(ARRIVALS, st.sampled_from([1, 2, 3, MOST_IDS]))
def test_no_id_is_accepted_twice_while_its_frame_would_be_fresh(
    arrivals: list[tuple[str, int, int, int]], most: int
) -> None:
    window, now = ReplayWindow(most_ids=most), NOW
    accepted: dict[tuple[str, str], int] = {}
    made: dict[tuple[str, str], int] = {}
    for sender, number, offset, later in arrivals:
        now += later
        name = sender, f"{sender} {number}"
        if abs(now - made.get(name, 0)) > WINDOW_MS:
            made[name] = now + offset  # its old frame is stale everywhere: the name may be used again
            accepted.pop(name, None)
        verdict = window.check(*name, made[name], now)
        if abs(now - made[name]) > WINDOW_MS:
            assert verdict == "stale"
        elif name in accepted:
            assert verdict in ({"replayed"} if most == MOST_IDS else {"replayed", "crowded"})
        elif verdict == "fresh":
            accepted[name] = now
        else:  # the name is remembered from before, or there was no room for it
            assert verdict == "replayed" or (verdict == "crowded" and most < MOST_IDS)
        assert len(window) <= 3 * most


@pytest.mark.req("WIRE-8")
def test_only_the_ids_of_the_last_two_minutes_are_kept() -> None:
    window, per_second = ReplayWindow(), 20
    most = 0
    for second in range(1200):
        now = NOW + second * 1000
        for number in range(per_second):
            assert window.check(WHO, f"{second}.{number}", now, now) == "fresh"
        most = max(most, len(window))
    assert 2 * per_second * WINDOW_MS // 1000 <= most <= per_second * (2 * WINDOW_MS // 1000 + 10)
    window.check("ben", "after a long rest", NOW + 10**8, NOW + 10**8)
    assert len(window) == 1


@pytest.mark.req("WIRE-8")
def test_a_clock_that_is_set_back_makes_no_frame_count_twice() -> None:
    window = ReplayWindow()
    assert window.check(WHO, "a", NOW, NOW) == "fresh"
    # Forwards until its frame has been stale for a window, which forgets older ids; then far back.
    there = range(0, 2 * WINDOW_MS + 1, WINDOW_MS // 4)
    back = range(2 * WINDOW_MS, -10 * WINDOW_MS, -WINDOW_MS // 4)
    for number, later in enumerate((*there, *back)):
        now = NOW + later
        assert window.check(WHO, f"b{number}", now, now) == "fresh"
        again = "replayed" if abs(later) <= WINDOW_MS else "stale"
        assert window.check(WHO, "a", NOW, now) == again
    assert window.check(WHO, "a", NOW, NOW) == "replayed"


@pytest.mark.req("WIRE-8")
def test_who_floods_has_room_of_its_own_and_is_served_while_it_keeps_the_order() -> None:
    """Ten times as many as there is room for, in the order in which they were made: each counts, the oldest
    are forgotten, and nothing as old as these counts any more. What others sent is remembered.
    """
    window, most = ReplayWindow(most_ids=1_000), 1_000
    assert window.check("ben", "his", NOW, NOW) == "fresh"
    for number in range(10 * most):
        assert window.check(WHO, f"{number}", NOW + number, NOW + number) == "fresh"
    now = NOW + 10 * most
    assert len(window) <= most + 1
    assert window.check(WHO, f"{10 * most - 1}", now - 1, now) == "replayed"
    assert [window.check(WHO, f"{number}", NOW + number, now) for number in range(10)] == ["crowded"] * 10
    assert window.check(WHO, "new, but old", NOW, now) == "crowded"
    assert window.check("ben", "his", NOW, now) == "replayed"
    assert window.check("ben", "another", NOW, now) == "fresh"


@pytest.mark.req("WIRE-8")
def test_who_is_crowded_out_is_told_when_its_next_frame_counts() -> None:
    window = ReplayWindow(most_ids=10)
    assert window.wait_ms(WHO, NOW) == 0
    verdicts = [window.check(WHO, str(number), NOW, NOW) for number in range(20)]
    assert verdicts == ["fresh"] * 10 + ["crowded"] * 10
    wait = window.wait_ms(WHO, NOW)
    assert 0 < wait <= 256
    assert window.check(WHO, "later", NOW + wait, NOW + wait) == "fresh"
    assert window.wait_ms(WHO, NOW + wait) == 0


@pytest.mark.req("WIRE-8")
def test_what_a_stranger_sent_counts_no_second_time_when_it_is_a_member() -> None:
    window = ReplayWindow(most_ids=2)
    assert window.check(STRANGERS, "kept", NOW, NOW) == "fresh"
    assert window.check("newcomer", "kept", NOW, NOW) == "replayed"
    for number in range(3):
        window.check(STRANGERS, str(number), NOW + 1_000 * number, NOW + 2_000)
    assert window.check("another newcomer", "kept", NOW, NOW + 2_000) == "crowded"
    assert window.check("another newcomer", "new", NOW + 2_000, NOW + 2_000) == "fresh"


@pytest.mark.req("WIRE-8")
def test_senders_that_are_gone_leave_nothing_behind() -> None:
    window = ReplayWindow(most_ids=2)
    for number in range(500):
        now = NOW + number * 1_000
        verdicts = [window.check(f"sender {number}", name, now, now) for name in "abc"]
        assert verdicts == ["fresh", "fresh", "crowded"]
    # What is remembered is of the last two windows, and one more between two sweeps.
    assert len(window._senders) <= 3 * WINDOW_MS // 1_000 + 2
    assert len(window) <= 3 * WINDOW_MS // 1_000 + 2
    later = NOW + 10 * WINDOW_MS + 500 * 1_000
    assert window.check("last", "a", later, later) == "fresh"
    assert set(window._senders) == {STRANGERS, "last"}
    assert len(window) == 1
