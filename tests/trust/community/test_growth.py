"""What a roster of many members costs, in counted steps: twice the members take twice as many."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from hearthnet.core.times import now_ms
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.history import History
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.helpers import large_community
from tests.helpers.members import take_in

FOUNDER = large_community.key("founder")
MOST = 2.3
"""Linear growth is 2, quadratic 4."""


def community(count: int) -> Roster:
    """A community of a founder and `count` members."""
    first = rosters.member(FOUNDER, "anchor", "founder", now_ms())
    founded = rosters.create(large_community.key("root"), first, "Town", now_ms())
    return large_community.with_members(founded, FOUNDER, large_community.members(count))


def steps(work: Callable[[], Any]) -> int:
    """How many functions are called, those of C too."""
    count = 0

    def on_event(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def growth(work: Callable[[Roster], Any]) -> float:
    """By how much more twice the members take."""
    few, many = community(60), community(120)
    return steps(lambda: work(many)) / steps(lambda: work(few))


@pytest.mark.req("SCALE-7")
@pytest.mark.parametrize(
    "work",
    [
        lambda held: rosters.derive(held.community_id, held.events),
        lambda held: rosters.derived(History(held.community_id, held.events)),
        lambda held: rosters.decode(rosters.encode(rosters.seal(held, FOUNDER)), FOUNDER.node_id).folded,
        lambda held: take_in(held, FOUNDER, Identity.generate()),
        lambda held: held.missing({}),
    ],
    ids=["verify", "replay", "load", "join", "missing"],
)
def test_twice_the_members_take_twice_the_steps(work: Callable[[Roster], Any]) -> None:
    assert growth(work) < MOST


@pytest.mark.req("SCALE-8")
def test_members_that_are_written_directly_are_those_that_joined() -> None:
    """What the benchmark of a community measures are members with persons, none of whose events is void."""
    held = community(5)
    assert len(held.members) == 6
    assert not held.folded.flaws
    assert all(held.owner(one.node_id) != one.node_id for one in large_community.members(5))
    assert rosters.derive(held.community_id, held.events).members == held.members
