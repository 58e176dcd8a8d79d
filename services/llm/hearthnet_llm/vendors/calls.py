"""Tool calls: unique ids, parsed arguments, results by call, and notices of incomplete calls."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from hearthnet import InternalError
from hearthnet.agent import placeholder_name
from hearthnet.core import content_hash
from hearthnet_llm.interface.frames import Done, Frame, Notice, StopReason, ToolCall

INCOMPLETE: Final = "tool_call_incomplete"
AGAIN: Final = "tool_call_again"
ERROR_MARK: Final = "ERROR: "
"""Begins the result of a tool that failed, in protocols without a field for that."""
_ODD: Final = re.compile(r"[^a-zA-Z0-9_-]")
_MADE_UP: Final = re.compile(r"call_\d{1,3}")
_PLAIN_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PREFIX: Final = 40
_DIGITS: Final = 16


class UnclosedCall(InternalError):
    """Raised for an answer whose calls are all incomplete; `spent` is its last frame."""

    def __init__(self, model: str, spent: Done) -> None:
        super().__init__(unclosed(model).message)
        self.spent = spent


class Unclosed:
    """Check of one answer's frames for a model that called and completed no call.

    If there are complete calls too, or the token limit was reached, the notice is enough.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._broken = False
        self._called = False

    def passed(self, frame: Frame) -> Frame:
        """Return the frame.

        Raises:
            UnclosedCall: instead of the last frame of such an answer; its code is `internal_error`.
        """
        if isinstance(frame, ToolCall):
            self._called = True
        elif isinstance(frame, Notice) and frame.code == INCOMPLETE:
            self._broken = True
        elif isinstance(frame, Done) and frame.stop_reason == "end" and self._broken and not self._called:
            raise UnclosedCall(self._model, frame)
        return frame


class CallIds:
    """Source of unique call ids: the vendor's if it is new, else a generated `call_<n>`."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def assign(self, vendors_id: Any) -> str:
        """Return the id for the next call."""
        number = len(self._used) + 1
        made = vendors_id if isinstance(vendors_id, str) and vendors_id else f"call_{number}"
        while made in self._used:
            made = f"call_{number}"
            number += 1
        self._used.add(made)
        return made


def is_made_up(call_id: str) -> bool:
    """Return whether an id was generated here; vendors that need no id never get such ids.

    Gemini's own ids, such as call_46063, have more digits.
    """
    return _MADE_UP.fullmatch(call_id) is not None


def plain_id(call_id: str) -> str:
    """Return the id for a vendor that accepts up to 64 letters, digits, `_` and `-`.

    An id that fits stays the same; any other gets a derived one. Models of other vendors use ids such as
    functions.search:0.
    """
    if _PLAIN_ID.fullmatch(call_id):
        return call_id
    return f"{_ODD.sub('_', call_id)[:_PREFIX]}_{content_hash(call_id.encode())[-_DIGITS:]}"


def arguments(value: Any) -> dict[str, Any] | None:
    """Return the arguments of a call, from an object or its JSON text, or None if invalid.

    They are invalid if they are no complete object, or hold values that JSON lacks (NaN, an unpaired
    surrogate) and that would reach the tool altered.
    """
    if value is None or (isinstance(value, str) and value.strip() in ("", "null")):
        return {}
    try:
        if isinstance(value, str):
            value = msgspec.json.decode(value)
        elif isinstance(value, dict):
            json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def incomplete(model: str, tool: str) -> Notice:
    """Return the notice of an incomplete call."""
    return Notice(
        INCOMPLETE,
        f"{model} sent a call of {tool or 'a tool'} "
        "whose arguments are no complete JSON object; it was left out",
    )


def unclosed(model: str) -> InternalError:
    """Return the error for an answer with tool calls of which none is complete."""
    return InternalError(
        f"{model}: the model called a tool with arguments that are no complete JSON object; "
        "ask again, with a larger max_tokens or another model",
    )


def tool_name(value: Any) -> str:
    """Return a valid name for a tool.

    A model may invent any name; a stand-in must not equal the name of another tool.
    """
    return placeholder_name(value) if isinstance(value, str) and value else ""


def call(model: str, call_id: str, name: Any, native: Any, signature: str | None = None) -> ToolCall | Notice:
    """Return the complete call, or a notice."""
    parsed, tool = arguments(native), tool_name(name)
    if parsed is None or not tool:
        return incomplete(model, tool)
    return ToolCall(call_id, tool, parsed, signature)


def stop_reason(reason: StopReason, called: bool) -> StopReason:
    """Return `tool_calls` if and only if there are calls and no other reason to stop."""
    if called and reason in ("end", "tool_calls"):
        return "tool_calls"
    return "end" if reason == "tool_calls" else reason


class Pairing:
    """The calls of one conversation, in order; `ids` assigns the id of each."""

    def __init__(self) -> None:
        self.ids = CallIds()
        self._waiting: list[ToolCall] = []

    def begin(self, calls: list[ToolCall]) -> None:
        """Set the calls that are answered next."""
        self._waiting = [call for call in calls if is_made_up(call.id)]

    def answered(self, vendors_id: Any, name: str | None) -> str:
        """Return the id of the call that a result answers.

        It is the result's own, else that of the first call of its tool, or of the first call if no tool is
        named.
        """
        if isinstance(vendors_id, str) and vendors_id:
            return vendors_id
        for place, call in enumerate(self._waiting):
            if name in (None, call.name):
                return self._waiting.pop(place).id
        return self.ids.assign(None)
