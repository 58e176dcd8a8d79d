"""What a person reads about a clock that is off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hearthnet.cli.commands import node
from hearthnet.cli.workflows.diagnosis import home_files
from hearthnet.cli.workflows.diagnosis.clock import clock_fault, clock_page, span
from hearthnet.cli.workflows.diagnosis.problem import Examined, Problem
from hearthnet.core.home import Home
from hearthnet.core.node_state import NodeState, ServerState
from hearthnet.core.times import CLOCK

MINUTE, HOUR, DAY = 60_000, 3_600_000, 24 * 3_600_000


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home that this process follows, as a command does."""
    home = Home.resolve(tmp_path)
    CLOCK.follow(home)
    return home


def learned(ahead_ms: int) -> None:
    CLOCK.learn(ahead_ms)
    CLOCK.keep(CLOCK.record._replace(homes=2, others_ms=ahead_ms))


def told(home: Home) -> Problem:
    """The one problem that `doctor` finds with the clock."""
    (problem,) = home_files.clock(Examined(home))
    return problem


@pytest.mark.req("CLOCK-7")
def test_a_right_clock_is_not_mentioned(home: Home) -> None:
    assert clock_fault(home) is None
    assert not list(home_files.clock(Examined(home)))
    assert clock_page(home) == {"ahead_ms": 0, "homes": 0, "others_ms": 0, "is_open": False}


@pytest.mark.req("CLOCK-7")
@pytest.mark.parametrize(("ahead_ms", "words"), [(3 * DAY, "3 days behind"), (-5 * HOUR, "5.0 hours ahead")])
def test_a_corrected_clock_is_told_with_by_how_much(home: Home, ahead_ms: int, words: str) -> None:
    learned(ahead_ms)
    problem = told(home)
    assert words in problem.cause
    assert "2 other homes" in problem.cause
    assert "timedatectl" in problem.remedy


@pytest.mark.req("CLOCK-7")
def test_a_clock_that_was_set_back_is_told(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    CLOCK.now_ms()
    real = CLOCK.system
    monkeypatch.setattr(CLOCK, "system", lambda: real() - 3 * DAY)
    problem = told(home)
    assert "was set back by 3 days" in problem.cause
    assert str(home.clock) in problem.remedy
    home.clock.unlink(missing_ok=True)
    CLOCK.follow(home)
    assert clock_fault(home) is None, "the remedy helps"


@pytest.mark.req("CLOCK-7")
def test_clocks_that_disagree_are_told(home: Home) -> None:
    CLOCK.keep(CLOCK.record._replace(homes=1, others_ms=9 * DAY, is_open=True))
    problem = told(home)
    assert "9 days behind of the clock of 1 other home" in problem.cause
    assert clock_page(home)["is_open"]


@pytest.mark.req("CLOCK-7")
def test_status_says_it_too(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    learned(3 * DAY)
    state = NodeState(
        1, f"ed25519:{'A' * 43}", "Mill", "0", ServerState("nats://127.0.0.1:1", 0, 0), (), 0, ready=True
    )
    node._show(home, state)
    assert "the clock of this computer is 3 days behind" in capsys.readouterr().out
    assert abs(json.loads(json.dumps(clock_page(home)))["ahead_ms"] - 3 * DAY) < MINUTE


@pytest.mark.req("CLOCK-7")
def test_spans_are_in_words() -> None:
    assert [span(one) for one in (7 * MINUTE, -150 * MINUTE, 3 * DAY)] == ["7 minutes", "2.5 hours", "3 days"]
    limits = (119 * MINUTE, 2 * HOUR, 2 * DAY - HOUR, 2 * DAY)
    assert [span(one) for one in limits] == ["119 minutes", "2.0 hours", "47.0 hours", "2 days"]
