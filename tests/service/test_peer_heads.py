"""Whom to ask for what was missed, and when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.bus.session.gossip_frames import SetDigest, SetDigests
from hearthnet.service.community.peer_heads import (
    CLAIM_SECONDS,
    FRUITLESS_SECONDS,
    SAME_HEADS_SECONDS,
    Neighbours,
)

OURS = SetDigests(SetDigest(5, "m"), SetDigest(0, ""))
MORE = SetDigests(SetDigest(9, "x"), SetDigest(0, ""))
EVEN_MORE = SetDigests(SetDigest(10, "y"), SetDigest(0, ""))
LESS = SetDigests(SetDigest(2, "z"), SetDigest(0, ""))


@pytest.mark.req("COMMUNITY-4")
def test_who_knows_more_is_asked_until_it_knows_no_more() -> None:
    others = Neighbours[SetDigests]()
    assert others.due(OURS, 0) is None
    assert others.pause(OURS, 0) is None
    others.record("anna", LESS, 0)
    others.record("berta", OURS, 0)
    assert others.pause(OURS, 0) is None
    others.record("carla", MORE, 0)
    assert (others.due(OURS, 0), others.pause(OURS, 0)) == ("carla", 0)
    others.gave("carla", True, 1)
    assert others.due(OURS, 1) == "carla", "there is still more"
    assert others.due(MORE, 1) is None


@pytest.mark.req("COMMUNITY-5")
def test_who_had_nothing_is_not_asked_for_the_same_again_nor_soon_for_more() -> None:
    others = Neighbours[SetDigests]()
    others.record("anna", MORE, 0)
    others.gave("anna", False, 0)
    others.record("anna", MORE, 100)
    assert others.due(OURS, 100) is None
    others.gave("anna", False, 100)
    others.record("anna", EVEN_MORE, 101)
    assert others.due(OURS, 101) is None
    assert others.pause(OURS, 101) == FRUITLESS_SECONDS - 1
    assert others.due(OURS, 100 + FRUITLESS_SECONDS) == "anna"


@pytest.mark.req("COMMUNITY-4", "ATTACK-36")
def test_what_was_passed_over_is_asked_for_again_while_heads_stay_as_they_are() -> None:
    others = Neighbours[SetDigests]()
    others.record("anna", MORE, 0)
    others.gave("anna", False, 0)
    for now in range(20, int(SAME_HEADS_SECONDS), 20):
        others.record("anna", MORE, now)
        assert others.due(OURS, now) is None
    others.record("anna", MORE, SAME_HEADS_SECONDS)
    assert others.due(OURS, SAME_HEADS_SECONDS) == "anna"


@pytest.mark.req("COMMUNITY-4", "COMMUNITY-5")
def test_who_is_silent_is_asked_again_later_each_time_while_it_says_that_it_knows_more() -> None:
    others, now, pauses = Neighbours[SetDigests](), 0.0, []
    for _ in range(8):
        others.record("anna", MORE, now)
        assert others.due(OURS, now) == "anna"
        others.silent("anna", now)
        pause = others.pause(OURS, now)
        assert pause is not None
        pauses.append(pause)
        now += pause
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]
    others.record("anna", MORE, now)
    others.gave("anna", True, now)
    others.silent("anna", now)
    assert others.pause(OURS, now) == 1
    assert others.pause(OURS, now + CLAIM_SECONDS) is None


@pytest.mark.req("COMMUNITY-5")
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 20), st.floats(0, 20)), max_size=60))
def test_a_liar_is_asked_at_most_so_often(claims: list[tuple[str, int, float]]) -> None:
    """Whatever three of them claim, and however fast: each that has nothing is asked once in 30 s."""
    others, now, asked = Neighbours[SetDigests](), 0.0, 0
    for node, count, pause in claims:
        now += pause
        others.record(node, SetDigests(SetDigest(count, "x"), SetDigest(0, "")), now)
        while (due := others.due(OURS, now)) is not None:
            asked += 1
            others.gave(due, False, now)
    assert asked <= 3 * (1 + now / FRUITLESS_SECONDS)
    assert len(others._claims) <= 3
