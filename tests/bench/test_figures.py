from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.__main__ import BEGIN, END, PAGE, suites, table
from tests.bench.figures import Figure, microseconds


@pytest.mark.req("BENCH-1")
def test_every_suite_is_found_and_the_page_has_room_for_the_table() -> None:
    here = {file.stem.removesuffix("_bench") for file in Path(__file__).parent.glob("*_bench.py")}
    assert suites().keys() == here
    text = PAGE.read_text()
    assert text.index(BEGIN) < text.index(END)


@pytest.mark.req("BENCH-1")
def test_a_goal_is_met_or_missed() -> None:
    assert Figure("a", 11.9, "us", "< 12", "").met
    assert not Figure("a", 12.0, "us", "< 12", "").met
    assert Figure("a", 0.6, "", ">= 0.6", "").met
    assert Figure("a", 99.0, "", "", "").met
    assert not Figure("a", 0.59, "", ">= 0.6", "").met
    assert "**no**" in table([Figure("a", 0.59, "", ">= 0.6", "a ratio")])


@pytest.mark.req("BENCH-1")
def test_the_work_is_measured_in_turns() -> None:
    order: list[str] = []
    cost = microseconds({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, number=2)
    assert order[:8] == ["a", "a", "b", "b", "a", "a", "b", "b"]
    assert set(cost) == {"a", "b"}
