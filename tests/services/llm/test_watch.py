"""When a server counts as gone, when it is looked at again, and that it does not flap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.models.health import CALM_SECONDS, DOUBT_SECONDS, Watch


@pytest.mark.req("LLM-43")
def test_one_failure_raises_a_doubt_and_the_next_one_settles_it() -> None:
    watch = Watch()
    watch.seen(0.0)
    assert (watch.there, watch.wait_seconds) == (True, CALM_SECONDS)
    watch.failed(100.0)
    assert (watch.there, watch.wait_seconds) == (True, DOUBT_SECONDS)
    watch.seen(100.3)
    assert watch.state == "there"
    watch.failed(200.0)
    watch.failed(200.3)
    assert not watch.there


@pytest.mark.req("LLM-43")
def test_who_was_never_there_is_not_offered_after_the_first_failure() -> None:
    watch = Watch()
    watch.failed(0.0)
    assert watch.state == "gone"


@pytest.mark.req("LLM-43")
def test_pauses_grow_to_half_a_minute_and_end_with_the_first_answer() -> None:
    watch = Watch()
    pauses = []
    for second in range(8):
        watch.failed(float(second))
        pauses.append(watch.wait_seconds)
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]
    watch.seen(100.0)
    assert (watch.there, watch.wait_seconds) == (True, CALM_SECONDS)


@pytest.mark.req("LLM-43")
def test_who_goes_soon_after_coming_back_is_looked_at_ever_more_rarely() -> None:
    watch, pauses = Watch(), []
    for turn in range(4):
        watch.seen(turn * 10.0)
        watch.failed(turn * 10.0 + 1)
        watch.failed(turn * 10.0 + 2)
        pauses.append(watch.wait_seconds)
    assert pauses == [1, 2, 4, 8]
    watch.seen(100.0)
    watch.failed(500.0)
    watch.failed(500.5)
    assert watch.wait_seconds == 1


@pytest.mark.req("LLM-43")
@given(st.lists(st.booleans()))
def test_it_is_looked_at_again_within_half_a_minute_whatever_was_seen(history: list[bool]) -> None:
    watch = Watch()
    for second, there in enumerate(history):
        (watch.seen if there else watch.failed)(float(second))
        assert 0 < watch.wait_seconds <= 30
    if history and history[-1]:
        assert watch.there
    if history[-2:] == [False, False]:
        assert not watch.there
