"""The tool loop: events in, actions out.

The rules in words. The tables that bind them are `TRANSITIONS` and `CALL_TRANSITIONS` in state.py; the
steps of a single call are in call_machine.py.

- A run sends a request to the model and is then *asking*. The model's text passes upstream, and each complete
  tool call is taken up at once.
- A call is checked in this order, and the first failure is its result: the budget allows it; it was not made
  too often; the tool is declared; the arguments fit. A call without side effects then waits for one of the
  `max_parallel` places; one that only reads and equals an earlier one is answered from memory.
  A call with an effect on a single home is refused unless it is settled which home that is. A call with side
  effects is then shown to a person, with the exact body, its digest and that home; only an approval puts it
  in the queue. Denial, edit and approval each concern one call, in any order, while others run. An edit is an
  approval of other arguments, which must be valid; if they are not, the call is shown again with the reason,
  at most `MAX_EDITS` times.
- When the model is done and has called nothing, its text is the answer and the run *ends*. Otherwise the run
  is *working* until every call of the turn has exactly one result. The results go back together, in the
  order of the calls, with the next request, in which the model is free to choose: a tool that stayed
  demanded would be called without end.
- When the rounds, the calls, the tokens or the time are used up, or all calls of a turn were repetitions,
  calls that have not started are refused, running reads are stopped, and the model gets a note and one more
  request with tools forbidden. If it calls one nevertheless, that call is ignored and its text is the
  answer. A call that a person confirmed is still carried out: a time limit does not revoke an approval, and a
  call that waits for a person costs no time.
- A tool that is bound to no capability is the client's own: the call is handed to the client, after an
  approval where it has side effects, and needs no place.
- When all open calls wait for people who cannot be reached from here, or for a client that is not connected,
  the run is *suspended*: its state holds everything.
- Where its caller requires that, a turn that acted is *suspended* before the next request to the model, with
  the results of its calls and nothing open; when resumed, it sends that request.
- A run that was saved is *resumed*, in this process or another one, with the decisions made since. A turn of
  the model that broke off before it called anything is requested again. One that called something ends there:
  a repeated request would lead to the same effect under another id. Time in which no process drove the run
  costs nothing.
- Cancellation and a model error end the run in any phase. Each open call gets a result even then, so that the
  transcript can be continued; that of an effect under way says that its outcome is unknown.

Late events (a frame after the end, the outcome of an abandoned call, a second decision) change nothing.

See: docs/protocol/agent.md#run-states, docs/protocol/agent.md#call-status.
"""

from __future__ import annotations

from typing import Any, assert_never

import msgspec

from hearthnet.agent.loop import limits, transcript, usage
from hearthnet.agent.loop.approvals import PendingCalls, client_request_of, pending_of
from hearthnet.agent.loop.call_machine import CallTable
from hearthnet.agent.loop.events import (
    Action,
    AnswerEvent,
    AskModel,
    CallComplete,
    CallDelta,
    CallEvent,
    Cancel,
    ClientEvent,
    Event,
    Fail,
    Finish,
    ModelDone,
    ModelEvent,
    ModelFailed,
    PassThrough,
    PersonEvent,
    Resume,
    Start,
    Suspend,
    TextDelta,
    Tick,
    VendorData,
)
from hearthnet.agent.loop.happened import HAPPENED, happened
from hearthnet.agent.loop.outcomes import Outcomes
from hearthnet.agent.loop.state import CallPhase, CallState, Phase, RunState, RunStep
from hearthnet.agent.tools.toolbox import DEFAULT_TOOL_SECONDS, Toolbox
from hearthnet.agent.tools.types import ToolChoice


class ToolLoop:
    """One run as a state machine.

    Feed it events and carry out the actions that it returns. After a terminal action it ignores all events.
    """

    def __init__(
        self, state: RunState, toolbox: Toolbox, per_tool_seconds: float = DEFAULT_TOOL_SECONDS
    ) -> None:
        self.state = state
        self._out: list[Action] = []
        self._outcomes = Outcomes(state, self._out)
        self._pending = PendingCalls(state, toolbox, self._outcomes, self._out)
        self._calls = CallTable(state, toolbox, per_tool_seconds, self._outcomes, self._pending, self._out)

    def feed(self, event: Event) -> list[Action]:
        """Return the actions that `event` requires, in order. Never raises."""
        if not self._accepts(event):
            return []
        self._pass_time(event)
        self._handle(event)
        self._advance()
        actions = self._out[:]
        self._out.clear()
        return actions

    def _accepts(self, event: Event) -> bool:
        if self.state.phase is Phase.SUSPENDED:
            return isinstance(event, Resume | Cancel)
        return self.state.phase is not Phase.ENDED

    def next_deadline(self) -> int | None:
        """Return the time at which a `Tick` is due, in milliseconds since the epoch.

        None where only events move the run on.
        """
        state = self.state
        if state.phase not in (Phase.ASKING, Phase.WORKING):
            return None
        waiting = [call for call in state.calls if call.waits]
        due = [call.expires_at for call in waiting]
        due += [call.shown_at + state.limits.patience_ms for call in waiting if not call.undecided]
        if state.busy and not state.limit:
            due.append(state.now + state.limits.wall_clock_ms - state.spent_ms)
        return min(due, default=None)

    def _handle(self, event: Event) -> None:
        if isinstance(event, ModelEvent):
            if self.state.phase is Phase.ASKING:
                self._on_model_event(event)
        elif isinstance(event, CallEvent):
            self._calls.on_tool_event(event)
        elif isinstance(event, AnswerEvent):
            self._pending.on_answer(event)
        elif isinstance(event, Tick):
            self._pending.expire_overdue()
        elif isinstance(event, Start):
            if self.state.phase is Phase.READY:
                self._ask_model(RunStep.STARTED)
        elif isinstance(event, Resume):
            self._resume(event)
        elif isinstance(event, Cancel):
            self._cancel()
        else:
            assert_never(event)

    def _ask_model(self, step: RunStep) -> None:
        state = self.state
        state.step(step)
        state.iteration += 1
        state.closing = bool(state.limit) or self._choice() == "none"
        if state.limit:
            state.messages.append(transcript.limit_note(limits.limit_text(state.limit, state.limits)))
        self._request_turn()

    def _choice(self) -> ToolChoice:
        return self.state.tool_choice if self.state.iteration == 1 else "auto"

    def _request_turn(self) -> None:
        state = self.state
        state.calls, state.text, state.aliases = [], [], {}
        state.thoughts, state.served, state.flooded = [], [], False
        count = {"iteration": state.iteration, "max_iterations": state.limits.max_iterations}
        self._outcomes.emit("iteration", {**count, "final": state.closing})
        choice = "none" if state.closing else self._choice()
        self._out.append(AskModel(messages=list(state.messages), tool_choice=choice))

    def _on_model_event(self, event: ModelEvent) -> None:
        match event:
            case TextDelta():
                self.state.text.append(event.text)
                self._outcomes.emit("token", {"text": event.text, "logprob": event.logprob})
            case VendorData(event="thought") if not self.state.served:
                self.state.thoughts.append(event.data)
            case VendorData():
                self.state.served.append((len(self.state.text), event.data))
            case PassThrough():
                self._outcomes.emit(event.event, event.data)
            case CallDelta():
                if not self.state.closing:
                    self._calls.show_delta(event)
            case CallComplete():
                self._on_call(event)
            case ModelDone():
                self._end_turn(event.meta)
            case ModelFailed():
                self._fail(event.error)
            case _:
                assert_never(event)

    def _on_call(self, event: CallComplete) -> None:
        if self.state.closing:
            text = f"the model called {event.name[:80]!r}, but no tool may be called any more; ignored"
            self._outcomes.emit("notice", {"code": "tool_call_ignored", "text": text})
        else:
            self._calls.add(event)

    def _end_turn(self, meta: dict[str, Any]) -> None:
        state = self.state
        state.meta = meta
        state.tokens_in += _count(meta, "tokens_in")
        state.tokens_out += _count(meta, "tokens_out")
        # The thread must hold exactly the messages sent and the answer, else another caller changed it.
        reported, expected = _count(meta, "thread_length"), len(state.messages) + 1
        state.thread_kept = reported if reported == expected else 0
        if state.calls:
            state.step(RunStep.CALLED)
        else:
            state.step(RunStep.ANSWERED)
            self._finish(str(meta.get("stop_reason", "end")))

    def _resume(self, event: Resume) -> None:
        state = self.state
        if state.phase is Phase.READY:
            self._ask_model(RunStep.STARTED)
            return
        if state.phase is Phase.ASKING and state.calls:
            state.step(RunStep.CALLED)
        state.step(RunStep.RESUMED)
        answers: list[PersonEvent | ClientEvent] = [*event.decisions, *event.answers]
        for answer in answers:
            self._pending.on_answer(answer)
        if state.phase is Phase.ASKING:
            self._request_turn()
        else:
            self._pending.expire_overdue()
            self._calls.resume()

    def _pass_time(self, event: Event) -> None:
        """Count the time in which a machine was at work; ignore a clock that jumps back."""
        state = self.state
        passed = event.now - state.now
        if passed <= 0:
            return
        if state.busy and not isinstance(event, Resume):
            state.spent_ms += passed
        state.now = event.now

    def _enforce_clock(self) -> None:
        state = self.state
        if state.limit or state.spent_ms < state.limits.wall_clock_ms:
            return
        state.limit = "wall_clock"
        for call in state.calls:
            if not call.effect and call.phase in (CallPhase.QUEUED, CallPhase.RUNNING):
                self._outcomes.cancel(call, limits.refusal_text(state))

    def _advance(self) -> None:
        """Take every step that the state now allows."""
        state = self.state
        if state.phase in (Phase.ASKING, Phase.WORKING):
            self._enforce_clock()
            self._calls.dispatch_queued()
        if state.phase is not Phase.WORKING:
            return
        unsettled = [call for call in state.calls if call.open]
        if not unsettled:
            self._settled()
        elif all(call.waits and call.undecided for call in unsettled):
            self._suspend(unsettled)

    def _settled(self) -> None:
        """Begin the next turn, or first return a turn that acted, where `follow_up` is set."""
        state = self.state
        acted = state.follow_up and any(call.effect and call.dispatched_at for call in state.calls)
        if acted and state.returned < state.iteration:
            state.returned = state.iteration
            self._suspend([])
        else:
            self._next_turn()

    def _next_turn(self) -> None:
        state = self.state
        self._record_turn()
        state.limit = limits.exceeded_limit(state)
        self._ask_model(RunStep.SETTLED)

    def _suspend(self, unsettled: list[CallState]) -> None:
        state = self.state
        state.step(RunStep.PARKED)
        pending = [pending_of(state.run, call) for call in unsettled if call.phase is CallPhase.PENDING]
        wanted = [client_request_of(state.run, call) for call in unsettled if call.phase is CallPhase.WANTED]
        asked = {"pending": msgspec.to_builtins(pending), "wanted": msgspec.to_builtins(wanted)}
        results = [] if unsettled else transcript.results(state)
        frame = {**asked, **({"results": results} if results else {}), HAPPENED: happened(state)}
        self._outcomes.emit("suspended", {"run": state.run, "requires_follow_up": True, **frame})
        text = "".join(state.text)
        self._out.append(Suspend(text=text, pending=pending, wanted=wanted, results=results))

    def _cancel(self) -> None:
        self._cancel_open("cancelled: the run was cancelled")
        self.state.step(RunStep.CANCELLED)
        self._finish("cancelled")

    def _fail(self, error: dict[str, Any]) -> None:
        self._cancel_open("cancelled: the model failed before this call had ended")
        self._record_turn()
        self.state.step(RunStep.FAILED)
        given = error.get("details")
        details = {**(given if isinstance(given, dict) else {}), HAPPENED: happened(self.state)}
        error = {**error, "details": details}
        self._outcomes.emit("error", error)
        self._out.append(Fail(error))

    def _cancel_open(self, text: str) -> None:
        for call in self.state.calls:
            if call.open:
                self._outcomes.cancel(call, text)

    def _record_turn(self) -> dict[str, Any]:
        """Add the turn and its results to the transcript; return the assistant's message."""
        state = self.state
        message = {"role": "assistant", "content": "".join(state.text)}
        state.messages += transcript.turn(state) if state.calls else [message]
        state.untrusted |= bool(state.served) or any(call.foreign for call in state.calls)
        return message

    def _finish(self, stop_reason: str) -> None:
        state = self.state
        done = {
            **state.meta,
            "run": state.run,
            "stop_reason": stop_reason,
            "limit": state.limit if state.closing and state.limit else None,
            "iterations": state.iteration,
            "tokens_in": state.tokens_in,
            "tokens_out": state.tokens_out,
            "ms": state.spent_ms,
            "tools": msgspec.to_builtins(state.records),
            HAPPENED: happened(state),
        }
        if state.shown:
            done["selection"] = msgspec.to_builtins(usage.selection_of(state))
        message = self._record_turn()
        self._outcomes.emit("done", done)
        self._out.append(Finish(message=message, done=done))


def _count(meta: dict[str, Any], name: str) -> int:
    value = meta.get(name)
    return value if isinstance(value, int) else 0
