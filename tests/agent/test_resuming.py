"""A saved run goes on: the tables' way from `suspended`, and from the middle of a turn (docs/tools.md)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthnet.agent.loop.events import (
    Action,
    AskModel,
    AskPerson,
    DecisionMade,
    Dispatch,
    Event,
    Finish,
    Resume,
    Suspend,
)
from hearthnet.agent.loop.loop import ToolLoop
from hearthnet.agent.loop.state import CallPhase, Limits, Phase, RunState
from hearthnet.agent.tools.toolbox import Toolbox
from hearthnet.agent.tools.types import Approve, Decision, Deny
from tests.agent.bench import POST, QUERY, TOOLBOX, Bench, asked, dispatched, of, only, paired
from tests.agent.test_loop_properties import LIMITS, MOVES, Move, Watched


class Saved(Bench):
    """A bench whose run is saved and taken up by another process."""

    toolbox = TOOLBOX

    def restart(self, *decisions: DecisionMade, after_ms: int = 0) -> list[Action]:
        """Everything but the saved state is lost; another process goes on, `after_ms` later."""
        saved = msgspec.json.encode(self.loop.state)
        self.loop = ToolLoop(msgspec.json.decode(saved, type=RunState), self.toolbox)
        self.now += after_ms
        self.actions = []
        return self.feed(Resume(now=self.now, decisions=decisions))

    def about(self, confirmation_id: str, decision: Decision, ago_ms: int = 0) -> DecisionMade:
        return DecisionMade(now=self.now - ago_ms, confirmation_id=confirmation_id, decision=decision)


def suspended() -> tuple[Saved, str]:
    """A run that waits for a yes to one post, and the id of the question."""
    bench = Saved()
    bench.token("Shall I? ")
    question = asked(bench.call("market_post", POST, "p")).pending.confirmation_id
    bench.undecided(question)
    bench.model_done("tool_calls")
    assert isinstance(bench.ended, Suspend)
    return bench, question


@pytest.mark.req("RUN-1")
def test_a_suspended_run_goes_on_with_the_decision_that_was_made_meanwhile() -> None:
    bench, question = suspended()
    sent = only(Dispatch, bench.restart(bench.about(question, Approve()), after_ms=3_600_000))
    assert sent.tool_call_id == "p"
    assert not of(AskPerson, bench.actions)
    bench.returned("p", {"event_id": "e"})
    said, result = bench.asked_model().messages[-2:]
    assert said["content"] == "Shall I? "
    assert result == {"role": "tool", "tool_call_id": "p", "content": '{"event_id":"e"}', "is_error": False}
    bench.token("Done.")
    ended = only(Finish, bench.model_done())
    assert ended.done["ms"] == 0, "nobody's time"
    paired(bench.loop.state.messages)


@pytest.mark.req("RUN-1")
def test_without_a_decision_it_asks_again_and_can_be_suspended_again() -> None:
    bench, question = suspended()
    (first,) = only(Suspend, bench.actions).pending
    again = asked(bench.restart(after_ms=1_000))
    assert again.pending.confirmation_id == question
    assert again.pending == first, "with the end that it had"
    assert only(Suspend, bench.undecided(question)).pending == [again.pending]
    only(Dispatch, bench.restart(bench.about(question, Approve())))


@pytest.mark.req("RUN-1")
def test_a_yes_that_was_given_in_time_counts_and_one_given_later_does_not() -> None:
    life = Limits().confirmation_ttl_ms
    bench, question = suspended()
    bench.now += life + 5_000
    only(Dispatch, bench.restart(bench.about(question, Approve(), ago_ms=6_000)))
    for decision, ago, status in (
        (Approve(), 1_000, "expired"),
        (Deny(), 1_000, "denied"),
        (None, 0, "expired"),
    ):
        bench, question = suspended()
        bench.now += life + 5_000
        bench.restart(*([bench.about(question, decision, ago)] if decision else []))
        assert [frame["status"] for frame in bench.frames("tool_result")] == [status]
        assert not of(Dispatch, bench.actions)


@pytest.mark.req("RUN-1")
def test_a_suspended_run_can_be_cancelled_and_hears_nothing_else() -> None:
    bench, question = suspended()
    assert bench.decided(question, Approve()) == []
    assert bench.later(1) == []
    ended = only(Finish, bench.cancel())
    assert ended.done["stop_reason"] == "cancelled"
    assert bench.frames("tool_result")[0]["status"] == "cancelled"
    paired(bench.loop.state.messages)
    assert bench.restart() == []


@pytest.mark.req("RUN-2")
def test_a_turn_that_broke_off_before_any_call_is_asked_for_again_and_counted_once() -> None:
    bench = Saved(choice="required")
    bench.token("Well, ")
    request = only(AskModel, bench.restart())
    assert (bench.loop.state.iteration, request.tool_choice) == (1, "required")
    bench.token("Boil it.")
    ended = only(Finish, bench.model_done())
    assert ended.message["content"] == "Boil it."
    assert ended.done["iterations"] == 1


@pytest.mark.req("RUN-2")
def test_a_turn_that_broke_off_after_a_call_ends_there() -> None:
    """Asked again, the model would want the same effect under another id."""
    bench = Saved()
    bench.token("Posting. ")
    question = asked(bench.call("market_post", POST, "p")).pending.confirmation_id
    bench.restart()
    assert not of(AskModel, bench.actions)
    only(Dispatch, bench.decided(question, Approve()))
    request = only(AskModel, bench.returned("p", {}))
    assert bench.loop.state.iteration == 2
    assert request.messages[-2]["content"] == "Posting. "
    paired(request.messages)


@pytest.mark.req("RUN-2")
def test_what_was_under_way_is_sent_again_an_effect_under_its_key() -> None:
    bench = Saved()
    bench.call("search_corpus", QUERY, "r")
    question = asked(bench.call("market_post", POST, "p")).pending.confirmation_id
    first = only(Dispatch, bench.decided(question, Approve()))
    bench.model_done("tool_calls")
    assert dispatched(bench.restart(after_ms=60_000)) == ["r", "p"]
    again = of(Dispatch, bench.actions)[1]
    assert (again.body, again.client_id) == (first.body, first.client_id)
    assert again.arguments_digest == first.arguments_digest
    bench.returned("p", {})
    only(AskModel, bench.returned("r", {}))


@pytest.mark.req("RUN-3")
def test_an_effect_whose_provider_knows_no_repetition_is_never_sent_again() -> None:
    bench = Saved()
    question = asked(bench.call("market_post", POST, "p")).pending.confirmation_id
    bench.decided(question, Approve())
    bench.model_done("tool_calls")
    bench.toolbox = Toolbox(tool.definition for tool in TOOLBOX)
    bench.toolbox["market_post"].repeatable_effect = False  # type: ignore[misc]
    bench.restart()
    assert not of(Dispatch, bench.actions)
    assert [frame["status"] for frame in bench.frames("tool_result")] == ["outcome_unknown"]
    (result,) = bench.results()
    assert result["content"].startswith("outcome_unknown: it may or may not have happened; do not call")


@pytest.mark.req("RUN-2")
def test_a_run_that_had_not_begun_begins() -> None:
    bench = Saved(start=False)
    only(AskModel, bench.restart())
    assert bench.loop.state.iteration == 1


@pytest.mark.req("RUN-4")
def test_limits_hold_over_restarts() -> None:
    bench = Saved(Limits(max_calls=2, max_iterations=2, wall_clock_ms=10_000))
    bench.call("list_corpora", {}, "a")
    bench.later(4_000)
    bench.restart(after_ms=3_600_000)
    assert bench.loop.state.spent_ms == 4_000
    bench.returned("a", {})
    bench.call("list_corpora", {}, "b")
    bench.restart(after_ms=3_600_000)
    bench.returned("b", {})
    assert bench.asked_model().tool_choice == "none"
    bench.restart()
    request = only(AskModel, bench.actions)
    assert (request.tool_choice, bench.loop.state.iteration) == ("none", 3)
    notes = [message for message in request.messages if "The limit of" in str(message["content"])]
    assert len(notes) == 1


class Crashing(Watched):
    """A watched bench whose process may die between any two events."""

    def crash(self, decisions: list[DecisionMade]) -> None:
        """Another process goes on from the saved state."""
        if self.loop.state.phase is Phase.ENDED:
            return
        self.loop = self._twin()
        state = self.loop.state
        again = [call for call in state.calls if call.phase is CallPhase.RUNNING]
        self.sent = [name for name in self.sent if name not in {call.id for call in again}]
        self.running -= {call.id for call in again}
        self.actions = [one for one in self.actions if not isinstance(one, Suspend)]
        for decided in decisions:
            self._note_decision(decided)
        self.feed(Resume(now=self.now, decisions=tuple(decisions)))

    def feed(self, event: Event) -> list[Any]:
        before = {call.id: (call.body, call.client_id) for call in self.loop.state.calls}
        actions = super().feed(event)
        for action in of(Dispatch, actions):
            if action.tool_call_id in before and not isinstance(event, DecisionMade | Resume):
                assert (action.body, action.client_id) == before[action.tool_call_id]
        return actions


@pytest.mark.req("RUN-1", "RUN-2", "RUN-4")
@given(moves=st.lists(st.one_of(MOVES, st.none()), max_size=50), said=st.booleans())
@settings(max_examples=300)
def test_a_process_that_dies_between_any_two_events_loses_and_repeats_nothing(
    moves: list[Move | None], said: bool
) -> None:
    bench = Crashing()
    for move in moves:
        if move is None:
            answers = [
                DecisionMade(now=bench.now, confirmation_id=call.confirmation_id, decision=Approve())
                for call in bench.loop.state.calls
                if said and call.phase is CallPhase.PENDING
            ]
            bench.crash(answers)
        else:
            move(bench)
    requests = of(AskModel, bench.actions)
    assert bench.loop.state.iteration <= LIMITS.max_iterations + 1
    assert bench.loop.state.call_count == len(bench.frames("tool_call"))
    for request in requests:
        paired(request.messages)
    if bench.loop.state.phase is Phase.ENDED:
        paired(bench.loop.state.messages)
