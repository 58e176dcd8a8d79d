"""What is counted as wrong."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.chaos.ledger import Ledger, judge
from tests.chaos.plan import Call, Plan

YES = Call("a", "market_post", "yes", "later")
HERE = Call("b", "market_post", "yes", "here")
EDIT = Call("c", "market_post", "edit", "meanwhile")
NO = Call("d", "market_post", "no", "later")
PLAN = Plan(seed=0, number=0, turns=((YES, HERE), (EDIT, NO)), kills=())
GOOD = Ledger(
    asked={"a", "b", "c", "d"},
    told={"a": "approved", "c": "edited", "d": "denied"},
    posts=["a", "b", "c, edited"],
    statuses={"a": "completed", "b": "completed", "c": "completed", "d": "denied"},
    ended=True,
)


def good(**changed: Any) -> Ledger:
    return msgspec.convert({**msgspec.to_builtins(GOOD), **changed}, Ledger)


@pytest.mark.req("CHAOS-2")
def test_what_was_confirmed_and_happened_once_is_right() -> None:
    assert judge(PLAN, GOOD).clean


@pytest.mark.req("CHAOS-2")
@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"posts": ["a", "a", "b", "c, edited"]}, {"twice": ("a",)}),
        ({"posts": ["b", "c, edited"], "statuses": {}}, {"missing": ("a",)}),
        ({"posts": ["a", "c, edited"], "statuses": {}}, {"missing": ("b",)}),
        ({"posts": ["a", "b", "c, edited", "d"], "statuses": {}}, {"unconfirmed": ("d",)}),
        ({"posts": ["a", "b", "c"], "statuses": {}}, {"missing": ("c, edited",), "unconfirmed": ("c",)}),
        ({"told": {"c": "edited"}}, {"unconfirmed": ("a",)}),
        ({"contradicted": ["a: approved, and denied"]}, {"troubles": 1}),
        ({"statuses": {"a": "failed"}}, {"troubles": 1}),
        ({"statuses": {"d": "completed"}}, {"troubles": 1}),
        ({"ended": False}, {"troubles": 1}),
    ],
)
def test_everything_else_is_wrong(changed: dict[str, Any], wrong: dict[str, Any]) -> None:
    found = msgspec.structs.asdict(judge(PLAN, good(**changed)))
    found["troubles"] = len(found["troubles"])
    assert {name: value for name, value in found.items() if value} == wrong


@pytest.mark.req("CHAOS-2")
def test_a_yes_that_came_too_late_confirms_nothing() -> None:
    late = msgspec.structs.replace(PLAN, late=True)
    assert judge(late, good(told={}, posts=[], statuses={})).clean
    assert judge(late, good(told={}, posts=["b"], statuses={})).unconfirmed == ("b",)


@pytest.mark.req("CHAOS-2")
def test_a_client_that_is_told_two_things_has_found_something() -> None:
    ledger = Ledger()
    ledger.tell("a", "approved")
    ledger.tell("a", "approved")
    assert ledger.contradicted == []
    ledger.tell("a", "denied")
    assert len(ledger.contradicted) == 1
