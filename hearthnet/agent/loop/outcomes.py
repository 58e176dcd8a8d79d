"""The ends of calls: each call gets exactly one result, with a record and a frame.

See: docs/protocol/agent.md#results-as-the-model-reads-them.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet.agent.loop import happened
from hearthnet.agent.loop.events import Abort, Action, Emit
from hearthnet.agent.loop.happened import UNSURE
from hearthnet.agent.loop.memory import RunMemory
from hearthnet.agent.loop.state import CallPhase, CallState, CallStep, Remembered, RunState
from hearthnet.agent.tools.result_text import error_text, fit, json_text
from hearthnet.agent.tools.types import CallStanding, CallStatus

TEXTS: Final[dict[CallStanding, str]] = {
    "pending": "{name} is about to run",
    "waiting": "{name} waits until somebody agrees to it",
    "wanted": "{name} waits for the device that asked",
    "running": "{name} is running",
    "completed": "{name} is done",
    "cached": "{name} was asked before; its result is used again",
    "failed": "{name} failed",
    "refused": "{name} was not run, because the call was not right or came too late",
    "denied": "{name} was not run: somebody said no",
    "expired": "{name} was not run: nobody decided in time",
    "cancelled": "{name} was stopped",
    "outcome_unknown": "{name} may or may not have happened; please look yourself",
}


def status_frame(call: CallState, status: CallStanding) -> dict[str, Any]:
    """Return the data of the `tool_status` frame."""
    text = TEXTS[status].format(name=call.name)
    return {"tool_call_id": call.id, "name": call.name, "status": status, "text": text}


_UNDER_WAY: Final = (CallPhase.RUNNING, CallPhase.WANTED)


class Outcomes:
    """The ends of the calls in `state`; the actions that they require are appended to `out`."""

    def __init__(self, state: RunState, out: list[Action]) -> None:
        self._state = state
        self._out = out
        self.memory = RunMemory(state)

    def finish(
        self,
        call: CallState,
        output: Any,
        meta: dict[str, Any],
        *,
        is_error: bool = False,
        stored: tuple[str, int] = ("", 0),
    ) -> None:
        """Give `call` its result, cut to size for the model; `stored` is CID and size of the whole."""
        try:
            full = json_text(output)
        except (TypeError, ValueError, OverflowError, RecursionError):
            text = error_text("internal_error", "what the tool gave back has no JSON text")
            self.fail(call, CallStep.RETURNED, "failed", text)
            return
        call.content, call.is_error = fit(full, self._state.limits.max_result_bytes), is_error
        size, truncated = len(full.encode("utf-8")), call.content != full
        if stored[0]:
            size, truncated = stored[1], True
            self._state.results[stored[0]] = size
        self.memory.keep(call, Remembered(content=call.content, size=size, truncated=truncated))
        data = {"content": output, "meta": meta, "truncated": truncated}
        self._end(call, CallStep.RETURNED, "failed" if is_error else "completed", size, data)

    def cancel(self, call: CallState, text: str) -> None:
        """End `call` without a result: cancelled, or with unknown outcome if it is an effect under way."""
        self._out.append(Abort(call.id))
        if call.repeated or (call.effect and call.phase in _UNDER_WAY):
            self.fail(call, CallStep.ABANDONED, "outcome_unknown", unknown_outcome(text))
        else:
            self.fail(call, CallStep.ABANDONED, "cancelled", text)

    def fail(self, call: CallState, step: CallStep, status: CallStatus, text: str) -> None:
        """Give `call` the error result `text`."""
        call.content, call.is_error = text, True
        self._end(call, step, status, len(text.encode("utf-8")), {"content": text})

    def _end(
        self, call: CallState, step: CallStep, status: CallStatus, size: int, data: dict[str, Any]
    ) -> None:
        if call.effect and call.phase in _UNDER_WAY:
            self.memory.forget()
        call.step(step)
        record = self._state.record(call, status, size)
        if call.changes:
            self._state.effects.append(happened.ended(call, status))
        self.report(call, status)
        self.emit("tool_result", {**msgspec.to_builtins(record), "is_error": call.is_error, **data})

    def recall(self, call: CallState, remembered: Remembered) -> None:
        """Give `call` the result of an earlier, equal call."""
        call.content = remembered.content
        output = msgspec.json.decode(remembered.content)
        data = {"content": output, "meta": {}, "truncated": remembered.truncated}
        self._end(call, CallStep.RECALLED, "cached", remembered.size, data)

    def report(self, call: CallState, status: CallStanding) -> None:
        """Emit the status of `call`."""
        self.emit("tool_status", status_frame(call, status))

    def emit(self, event: str, data: dict[str, Any]) -> None:
        """Emit a frame of the run."""
        self._out.append(Emit(event, data))


def failure(effect: bool, code: str, message: str) -> tuple[CallStatus, str]:
    """Return the status and the result text of a call that was sent and failed."""
    if effect and code in UNSURE:
        return "outcome_unknown", unknown_outcome(message)
    return "failed", error_text(code, message)


def unknown_outcome(why: str) -> str:
    """Return the result text of an effect that was sent and not answered."""
    text = f"it may or may not have happened; do not call it again, tell the user to check ({why})"
    return error_text("outcome_unknown", text)
