"""The calls of one turn: checked, shown to a person, queued, dispatched, settled.

`CALL_TRANSITIONS` in state.py gives the allowed steps. Every call is settled exactly once, and settling it
is the only way to a `tool_result` frame.

See: docs/protocol/agent.md#judging-a-call, docs/protocol/agent.md#consent-to-effects.
"""

from __future__ import annotations

from typing import Any, Final, assert_never

from hearthnet.agent.loop import limits
from hearthnet.agent.loop.approvals import PendingCalls
from hearthnet.agent.loop.events import (
    Action,
    CallComplete,
    CallDelta,
    CallEvent,
    Dispatch,
    ToolFailed,
    ToolProgress,
    ToolReturned,
)
from hearthnet.agent.loop.memory import fingerprint
from hearthnet.agent.loop.outcomes import Outcomes, failure
from hearthnet.agent.loop.state import CallPhase, CallState, CallStep, RunState, client_id_of
from hearthnet.agent.tools.names import is_safe, sanitize
from hearthnet.agent.tools.result_text import TOO_DEEP, error_text, too_deep
from hearthnet.agent.tools.toolbox import ReaderTool, Tool, Toolbox

MAX_ID_LENGTH: Final = 40
"""The longest id of a call that OpenAI accepts; the vendor may change within a conversation."""
MOST_OF_A_TURN: Final = 128
"""The number of calls that are taken up in one turn, and of ids for which pieces are shown."""
UNKNOWN: Final = "unknown_tool"


class CallTable:
    """The calls in `state`; the actions that they require are appended to `out`."""

    def __init__(
        self,
        state: RunState,
        toolbox: Toolbox,
        per_tool_seconds: float,
        outcomes: Outcomes,
        pending: PendingCalls,
        out: list[Action],
    ) -> None:
        self._state = state
        self._toolbox = toolbox
        self._per_tool_seconds = per_tool_seconds
        self._outcomes = outcomes
        self._pending = pending
        self._memory = outcomes.memory
        self._out = out

    def show_delta(self, event: CallDelta) -> None:
        """Pass on a piece of a call, under the id that the call will have."""
        aliases = self._state.aliases
        if event.id not in aliases:
            if len(aliases) >= MOST_OF_A_TURN:
                return
            aliases[event.id] = self._fresh_id(event.id)
        data = {"id": aliases[event.id], "arguments_delta": event.arguments_delta}
        if event.name:
            tool = self._toolbox.find(event.name)
            data["name"] = event.name if tool is None else tool.definition.name
        self._outcomes.emit("tool_call_delta", data)

    def add(self, event: CallComplete) -> None:
        """Take up a complete call: refuse it, show it to a person, or queue it."""
        state, tool = self._state, self._toolbox.find(event.name)
        if len(state.calls) >= MOST_OF_A_TURN:
            self._ignore(event)
            return
        arguments: Any = {} if (deep := too_deep(event.arguments)) else event.arguments
        call = CallState(
            id=state.aliases.pop(event.id, "") or self._fresh_id(event.id),
            name=event.name if tool is None else tool.definition.name,
            model_name=_model_name(event.name, tool),
            arguments=arguments if isinstance(arguments, dict) else {},
            sealed=event.sealed,
        )
        state.calls.append(call)
        state.call_count += 1
        self._outcomes.emit("tool_call", {"id": call.id, "name": call.name, "arguments": arguments})
        self._outcomes.report(call, "pending")
        if wrong := self._refusal(call, tool, arguments) or (TOO_DEEP if deep else ""):
            self._outcomes.fail(call, CallStep.REFUSED, "refused", wrong)
        elif call.effect:
            call.step(CallStep.SHOWN)
            self._pending.show(call)
        else:
            call.step(CallStep.ADMITTED)

    def _refusal(self, call: CallState, tool: Tool | None, arguments: Any) -> str:
        """Fill in the request of `call`; return the reason to refuse it, or an empty string."""
        state = self._state
        if tool is not None:
            call.capability, call.effect, call.changes = tool.capability, tool.effect, tool.changes
        if not state.limit and state.call_count > state.limits.max_calls:
            state.limit = "max_calls"
        if state.limit:
            return limits.refusal_text(state)
        call.excessive = self._memory.count(call.name, arguments) > state.limits.max_equal_calls
        if call.excessive:
            return limits.repetition_text(state.limits)
        if tool is None:
            return error_text(UNKNOWN, self._toolbox.unknown(call.name).message)
        if tool.effect:
            call.client_id = client_id_of(state.run, call.id)
        call.timeout_ms = tool.timeout_ms(self._per_tool_seconds)
        prepared = tool.prepare(arguments, call.client_id)
        if isinstance(prepared, str):
            return prepared
        if isinstance(tool, ReaderTool) and (wrong := tool.refusal(prepared.body, state.results)):
            return wrong
        call.body, call.arguments_digest = prepared.body, prepared.arguments_digest
        call.memory_key = fingerprint(tool.capability, prepared.body) if tool.memorable else ""
        return ""

    def _ignore(self, event: CallComplete) -> None:
        """Drop a call beyond `MOST_OF_A_TURN`, with a notice for the first one of the turn."""
        state = self._state
        if not state.flooded:
            state.flooded = True
            text = f"the model called more than {MOST_OF_A_TURN} tools in one turn; the rest is ignored"
            self._outcomes.emit("notice", {"code": "tool_call_ignored", "text": text})

    def _fresh_id(self, proposed: str) -> str:
        """Return an id that no other call of the run has.

        That is the model's own id where it is short enough and unused, else `call_<n>`.
        """
        used = self._state.used_ids
        if 0 < len(proposed) <= MAX_ID_LENGTH and proposed not in used:
            fresh = proposed
        else:
            number = len(used) + 1
            while (fresh := f"call_{number}") in used:
                number += 1
        used.add(fresh)
        return fresh

    def resume(self) -> None:
        """Continue the open calls of a saved run (docs/decisions/0070).

        A call that was under way is sent again: a read as it is, an effect under its idempotency key, by
        which the provider recognizes it. An effect without a key is never sent twice; its outcome is unknown.
        """
        for call in self._state.calls:
            if call.phase is CallPhase.PENDING:
                self._pending.show(call)
            elif call.phase is CallPhase.WANTED:
                self._pending.request_client(call)
            elif call.phase is CallPhase.RUNNING and self._repeatable(call):
                call.step(CallStep.REPEATED)
                call.repeated = call.effect
            elif call.phase is CallPhase.RUNNING:
                self._outcomes.cancel(call, "the process that had sent it ended before it was answered")

    def _repeatable(self, call: CallState) -> bool:
        return not call.effect or self._toolbox[call.name].repeatable_effect

    def dispatch_queued(self) -> None:
        """Send as many queued calls as there are places, in the order of the calls.

        A remembered result needs no place. A call whose equal is running waits for the result of that one.
        """
        state = self._state
        queued = [call for call in state.calls if call.phase is CallPhase.QUEUED]
        if not queued:
            return
        places = state.limits.max_parallel - sum(call.phase is CallPhase.RUNNING for call in state.calls)
        for call in queued:
            if self._toolbox[call.name].is_client:
                self._pending.hand_out(call)
            elif (remembered := self._memory.recall(call)) is not None:
                self._outcomes.recall(call, remembered)
            elif places > 0 and not self._memory.under_way(call):
                places -= 1
                self._dispatch(call)

    def _dispatch(self, call: CallState) -> None:
        state = self._state
        call.step(CallStep.DISPATCHED)
        call.dispatched_at = state.now
        if call.effect:
            self._memory.forget()
        call.epoch = state.epoch
        # A confirmed call has its full time; a read is limited to the time that the run has left.
        left = call.timeout_ms if call.effect else state.limits.wall_clock_ms - state.spent_ms
        self._out.append(dispatch_of(call, min(call.timeout_ms, left), state.limits.max_result_bytes))
        data = {"tool_call_id": call.id, "name": call.name, "capability": call.capability}
        self._outcomes.report(call, "running")
        self._outcomes.emit("tool_started", {**data, "arguments": call.arguments})

    def on_tool_event(self, event: CallEvent) -> None:
        """Handle progress or the outcome of a running call; ignore any other call."""
        call = next((c for c in self._state.calls if c.id == event.tool_call_id), None)
        if call is None or call.phase is not CallPhase.RUNNING:
            return
        match event:
            case ToolProgress():
                self._outcomes.emit("tool_progress", {**event.data, "tool_call_id": call.id})
            case ToolReturned():
                call.foreign = self._toolbox[call.name].foreign
                call.signed_by, call.entry = event.signed_by, event.entry
                # A tool that reports an error itself may have done a part of its work.
                call.answered = None if event.is_error else ""
                stored = event.cid, event.size
                self._outcomes.finish(call, event.output, event.meta, is_error=event.is_error, stored=stored)
            case ToolFailed():
                call.foreign = True
                # What an earlier process sent may have happened, whatever stops it from being sent again.
                code = "outcome_unknown" if call.repeated and event.unsent else event.code
                status, text = failure(call.effect, code, event.message)
                call.signed_by, call.entry = event.signed_by, event.entry
                call.answered, call.unsent = None if call.repeated else code, event.unsent
                self._outcomes.fail(call, CallStep.RETURNED, status, text)
            case _:
                assert_never(event)


def dispatch_of(call: CallState, timeout_ms: int, max_result_bytes: int = 0) -> Dispatch:
    """Return the action that sends `call`."""
    return Dispatch(
        tool_call_id=call.id,
        name=call.name,
        capability=call.capability,
        body=call.body,
        client_id=call.client_id,
        timeout_ms=timeout_ms,
        arguments_digest=call.arguments_digest,
        max_result_bytes=max_result_bytes,
        grant=call.grant,
        use=call.use,
        provider=call.provider,
    )


def _model_name(called: str, tool: Tool | None) -> str:
    """Return the name, accepted by every vendor, under which the call goes back to the model."""
    if tool is not None:
        return tool.safe_name
    return called if is_safe(called) else sanitize(called)
