"""The calls of one turn: judged, shown to a person, queued, dispatched, settled (tools.md, "One turn" 1-7).

`CALL_TRANSITIONS` in state.py says what may follow what. Every call is settled exactly once, and settling
it is the only way to a `tool_result` frame.
"""

from __future__ import annotations

from typing import Any, Final, assert_never

import msgspec

from hearthnet.tools import budget, derive
from hearthnet.tools.events import (
    Abort,
    Action,
    AskPerson,
    CallComplete,
    CallDelta,
    CallEvent,
    Decided,
    Dispatch,
    Emit,
    PersonEvent,
    ToolFailed,
    ToolProgress,
    ToolReturned,
    Undecided,
)
from hearthnet.tools.memory import Memory, fingerprint
from hearthnet.tools.names import is_safe, presentable
from hearthnet.tools.state import CallPhase, CallState, CallStep, Remembered, RunState
from hearthnet.tools.statuses import status_frame
from hearthnet.tools.toolbox import BoundTool, Prepared, Toolbox
from hearthnet.tools.transcript import error_text, fit, json_text
from hearthnet.tools.types import CallStanding, CallStatus, Deny, Edit, Pending

MAX_EDITS: Final = 5
MAX_ID_LENGTH: Final = 64
MOST_OF_A_TURN: Final = 128
"""Calls of one turn that are taken up, and ids of which pieces are shown."""
UNKNOWN: Final = "unknown_tool"
LOST: Final = frozenset({"timeout", "partition"})
"""Codes after which the caller cannot say whether an effect happened; asked again, the provider may know."""
UNSURE: Final = LOST | {"outcome_unknown"}
"""These, and the code of a provider that cannot say either."""


class Calls:
    """The calls in `state`; what has to be done about them is appended to `out`."""

    def __init__(self, state: RunState, toolbox: Toolbox, per_tool_seconds: float, out: list[Action]) -> None:
        self._state = state
        self._toolbox = toolbox
        self._per_tool_seconds = per_tool_seconds
        self._out = out
        self._memory = Memory(state)

    # --- from the model

    def show_delta(self, event: CallDelta) -> None:
        """Passes a piece of a call on, under the id that the call will have."""
        aliases = self._state.aliases
        if event.id not in aliases:
            if len(aliases) >= MOST_OF_A_TURN:
                return
            aliases[event.id] = self._fresh_id(event.id)
        data = {"id": aliases[event.id], "arguments_delta": event.arguments_delta}
        if event.name:
            tool = self._toolbox.find(event.name)
            data["name"] = event.name if tool is None else tool.definition.name
        self._emit("tool_call_delta", data)

    def take(self, event: CallComplete) -> None:
        """Takes up a complete call: refused, shown to a person, or queued."""
        state, tool = self._state, self._toolbox.find(event.name)
        if len(state.calls) >= MOST_OF_A_TURN:
            self._ignore(event)
            return
        call = CallState(
            id=state.aliases.pop(event.id, "") or self._fresh_id(event.id),
            name=event.name if tool is None else tool.definition.name,
            model_name=_model_name(event.name, tool),
            arguments=event.arguments if isinstance(event.arguments, dict) else {},
            sealed=event.sealed,
        )
        state.calls.append(call)
        state.call_count += 1
        self._emit("tool_call", {"id": call.id, "name": call.name, "arguments": event.arguments})
        self._tell(call, "pending")
        if wrong := self._judge(call, tool, event.arguments):
            self._settle(call, CallStep.REFUSED, "refused", wrong)
        elif call.effect:
            call.step(CallStep.SHOWN)
            self._show(call)
        else:
            call.step(CallStep.ADMITTED)

    def _judge(self, call: CallState, tool: BoundTool | None, arguments: Any) -> str:
        """Fills in what would be sent; returns why it must not be, or nothing."""
        state = self._state
        if not state.limit and state.call_count > state.limits.max_calls:
            state.limit = "max_calls"
        if state.limit:
            return budget.over(state)
        call.excessive = self._memory.count(call.name, arguments) > state.limits.max_equal_calls
        if call.excessive:
            return budget.repeated(state.limits)
        if tool is None:
            return error_text(UNKNOWN, self._toolbox.unknown(call.name).message)
        call.capability, call.effect = tool.capability, tool.effect
        if tool.effect:
            call.client_id = derive.client_id(state.run, call.id)
        call.timeout_ms = tool.timeout_ms(self._per_tool_seconds)
        prepared = tool.prepare(arguments, call.client_id)
        if isinstance(prepared, str):
            return prepared
        call.body, call.arguments_digest = prepared.body, prepared.arguments_digest
        call.memory_key = fingerprint(tool.capability, prepared.body) if tool.memorable else ""
        return ""

    def _ignore(self, event: CallComplete) -> None:
        """Of more calls than any turn needs the first is told, and none is kept."""
        state = self._state
        if not state.flooded:
            state.flooded = True
            text = f"the model called more than {MOST_OF_A_TURN} tools in one turn; the rest is ignored"
            self._emit("notice", {"code": "tool_call_ignored", "text": text})

    def _fresh_id(self, given: str) -> str:
        """An id that no other call of the run has: the model's own if it will do, else `call_<n>`."""
        used = self._state.used_ids
        if 0 < len(given) <= MAX_ID_LENGTH and given not in used:
            fresh = given
        else:
            number = len(used) + 1
            while (fresh := f"call_{number}") in used:
                number += 1
        used.add(fresh)
        return fresh

    # --- from people

    def _show(self, call: CallState) -> None:
        state = self._state
        call.confirmation_id = derive.confirmation_id(state.run, call.id)
        call.shown_at, call.undecided = state.now, False
        call.expires_at = call.expires_at or state.now + state.limits.confirmation_ttl_ms
        pending = self.pending(call)
        self._tell(call, "waiting")
        self._emit("confirmation_required", msgspec.to_builtins(pending))
        self._out.append(AskPerson(pending))

    def pending(self, call: CallState) -> Pending:
        """What a person must see of `call`."""
        return Pending(
            confirmation_id=call.confirmation_id,
            run=self._state.run,
            tool_call_id=call.id,
            name=call.name,
            capability=call.capability,
            arguments=call.arguments,
            body=call.body,
            arguments_digest=call.arguments_digest,
            client_id=call.client_id,
            expires_at=call.expires_at,
            problem=call.problem,
        )

    def hear_person(self, event: PersonEvent) -> None:
        """A decision about one pending call; about any other call it changes nothing."""
        call = next((c for c in self._state.calls if c.confirmation_id == event.confirmation_id), None)
        if call is None or call.phase is not CallPhase.PENDING:
            return
        if isinstance(event, Undecided):
            call.undecided = True
        elif isinstance(event.decision, Deny):
            reason = event.decision.reason
            self._deny(call, f"the user said no: {reason}" if reason else "the user said no")
        else:
            self._agree(call, event)

    def _agree(self, call: CallState, event: Decided) -> None:
        if event.now >= call.expires_at:
            self._expire(call)
        elif isinstance(event.decision, Edit):
            self._edit(call, event.decision.arguments)
        else:
            call.step(CallStep.APPROVED)

    def _edit(self, call: CallState, arguments: dict[str, Any]) -> None:
        prepared = self._toolbox[call.name].prepare(arguments, call.client_id)
        if isinstance(prepared, Prepared):
            call.arguments, call.body = arguments, prepared.body
            call.arguments_digest, call.problem = prepared.arguments_digest, ""
            call.step(CallStep.APPROVED)
            return
        call.edits += 1
        if call.edits > MAX_EDITS:
            self._deny(call, "the user's changes were not valid")
        else:
            call.problem = prepared
            self._show(call)

    def _deny(self, call: CallState, why: str) -> None:
        self._settle(call, CallStep.DENIED, "denied", error_text("denied", why))

    def _expire(self, call: CallState) -> None:
        text = error_text("confirmation_expired", "nobody decided in time; nothing was done")
        self._settle(call, CallStep.EXPIRED, "expired", text)
        self._out.append(Abort(call.id))

    def lose_patience(self) -> None:
        """Closes questions that have expired, and stops waiting where the wait was long enough."""
        state = self._state
        for call in state.calls:
            if call.phase is not CallPhase.PENDING:
                continue
            if state.now >= call.expires_at:
                self._expire(call)
            elif state.now >= call.shown_at + state.limits.patience_ms:
                call.undecided = True

    def take_up(self) -> None:
        """Goes on with the open calls of a saved run (docs/decisions/0070).

        What was under way is sent again: a read as it is, an effect under its key, by which a provider knows
        it. An effect without one is never sent twice; nobody can say what became of it.
        """
        for call in self._state.calls:
            if call.phase is CallPhase.PENDING:
                self._show(call)
            elif call.phase is CallPhase.RUNNING and self._repeatable(call):
                call.step(CallStep.REPEATED)
            elif call.phase is CallPhase.RUNNING:
                self.abandon(call, "the process that had sent it ended before it was answered")

    def _repeatable(self, call: CallState) -> bool:
        return not call.effect or self._toolbox[call.name].repeatable_effect

    # --- to and from the tools

    def dispatch_queued(self) -> None:
        """Sends as many queued calls as there are places, in the order of the calls.

        What is remembered needs no place, and what an equal call is being asked for waits for that.
        """
        state = self._state
        places = state.limits.max_parallel - sum(call.phase is CallPhase.RUNNING for call in state.calls)
        for call in state.calls:
            if call.phase is not CallPhase.QUEUED:
                continue
            if (remembered := self._memory.recall(call)) is not None:
                self._recall(call, remembered)
            elif places > 0 and not self._memory.under_way(call):
                places -= 1
                self._dispatch(call)

    def _recall(self, call: CallState, remembered: Remembered) -> None:
        call.content = remembered.content
        output = msgspec.json.decode(remembered.content)
        data = {"content": output, "meta": {}, "truncated": remembered.truncated}
        self._close(call, CallStep.RECALLED, "cached", remembered.size, data)

    def _dispatch(self, call: CallState) -> None:
        state = self._state
        call.step(CallStep.DISPATCHED)
        call.dispatched_at = state.now
        if call.effect:
            self._memory.forget()
        call.epoch = state.epoch
        # What was confirmed has its full time; a read gets no more than the run has left.
        left = call.timeout_ms if call.effect else state.limits.wall_clock_ms - state.spent_ms
        self._out.append(
            Dispatch(
                tool_call_id=call.id,
                name=call.name,
                capability=call.capability,
                body=call.body,
                client_id=call.client_id,
                timeout_ms=min(call.timeout_ms, left),
                arguments_digest=call.arguments_digest,
            )
        )
        data = {"tool_call_id": call.id, "name": call.name, "capability": call.capability}
        self._tell(call, "running")
        self._emit("tool_started", {**data, "arguments": call.arguments})

    def hear_tool(self, event: CallEvent) -> None:
        """Progress or the outcome of a running call; of any other call it changes nothing."""
        call = next((c for c in self._state.calls if c.id == event.tool_call_id), None)
        if call is None or call.phase is not CallPhase.RUNNING:
            return
        match event:
            case ToolProgress():
                self._emit("tool_progress", {**event.data, "tool_call_id": call.id})
            case ToolReturned():
                self._return(call, event.output, event.meta)
            case ToolFailed():
                status, text = failure(call.effect, event.code, event.message)
                self._settle(call, CallStep.RETURNED, status, text)
            case _:
                assert_never(event)

    def _return(self, call: CallState, output: Any, meta: dict[str, Any]) -> None:
        full = json_text(output)
        call.content = fit(full, self._state.limits.max_result_bytes)
        size, truncated = len(full.encode("utf-8")), call.content != full
        self._memory.keep(call, Remembered(content=call.content, size=size, truncated=truncated))
        data = {"content": output, "meta": meta, "truncated": truncated}
        self._close(call, CallStep.RETURNED, "completed", size, data)

    def abandon(self, call: CallState, text: str) -> None:
        """Gives `call` up: the outcome of an effect under way is unknown, all else never happened."""
        self._out.append(Abort(call.id))
        if call.phase is CallPhase.RUNNING and call.effect:
            self._settle(call, CallStep.ABANDONED, "outcome_unknown", _unknown_outcome(text))
        else:
            self._settle(call, CallStep.ABANDONED, "cancelled", text)

    def _settle(self, call: CallState, step: CallStep, status: CallStatus, text: str) -> None:
        """Gives `call` the error result `text`."""
        call.content, call.is_error = text, True
        self._close(call, step, status, len(text.encode("utf-8")), {"content": text})

    def _close(
        self, call: CallState, step: CallStep, status: CallStatus, size: int, data: dict[str, Any]
    ) -> None:
        if call.effect and call.phase is CallPhase.RUNNING:
            self._memory.forget()
        call.step(step)
        record = self._state.record(call, status, size)
        self._tell(call, status)
        self._emit("tool_result", {**msgspec.to_builtins(record), "is_error": call.is_error, **data})

    def _tell(self, call: CallState, status: CallStanding) -> None:
        self._emit("tool_status", status_frame(call, status))

    def _emit(self, event: str, data: dict[str, Any]) -> None:
        self._out.append(Emit(event, data))


def failure(effect: bool, code: str, message: str) -> tuple[CallStatus, str]:
    """How a call that was sent and failed has ended, and what is said of it."""
    if effect and code in UNSURE:
        return "outcome_unknown", _unknown_outcome(message)
    return "failed", error_text(code, message)


def _model_name(called: str, tool: BoundTool | None) -> str:
    """The name under which the call goes back to the model: one that every vendor takes."""
    if tool is not None:
        return tool.safe_name
    return called if is_safe(called) else presentable(called)


def _unknown_outcome(why: str) -> str:
    text = f"it may or may not have happened; do not call it again, tell the user to check ({why})"
    return error_text("outcome_unknown", text)
