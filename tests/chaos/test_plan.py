"""Schedules follow from their seed, and between them strike everywhere."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.chaos.plan import plans
from tests.chaos.steps import STRIKES


@pytest.mark.req("CHAOS-1")
def test_the_same_seed_gives_the_same_schedules_and_another_one_others() -> None:
    assert list(plans(7, 40)) == list(plans(7, 40))
    assert list(plans(7, 40)) != list(plans(8, 40))


@pytest.mark.req("CHAOS-1")
def test_no_two_schedules_kill_the_same_and_each_combination_comes_equally_often() -> None:
    drawn = list(plans(1, 1000))
    kills = {tuple((kill.step, kill.victim, kill.nth) for kill in plan.kills) for plan in drawn}
    assert len(kills) == len(drawn) == 1000
    first = Counter((plan.kills[0].step, plan.kills[0].victim) for plan in drawn)
    assert set(first) == set(STRIKES)
    assert max(first.values()) - min(first.values()) <= 1


@pytest.mark.req("CHAOS-1")
def test_schedules_have_one_to_six_calls_and_every_way_to_confirm_them() -> None:
    drawn = list(plans(1, 1000))
    assert {len(plan.calls) for plan in drawn} == {1, 2, 3, 4, 5, 6}
    assert {len(plan.turns) for plan in drawn} >= {1, 2, 3}
    ways = {(call.word, call.how, call.voices) for plan in drawn for call in plan.calls.values()}
    for word in ("yes", "edit", "no"):
        assert (word, "here", "once") in ways
        for how in ("meanwhile", "later"):
            for voices in ("once", "twice", "two clients", "against each other"):
                assert (word, how, voices) in ways
    assert any(word is None for word, _, _ in ways)
    assert any(word == "silence" for word, _, _ in ways)
    assert any(plan.late for plan in drawn)
    assert any(plan.resumers == 2 for plan in drawn)
