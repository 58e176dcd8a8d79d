"""Calls of one answer: ids that are there and differ, arguments that parse, notices of what never did."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from hearthnet.canonical import content_hash
from hearthnet.errors import HearthNetError
from hearthnet.models import failures
from hearthnet.tools.names import stand_in
from hearthnet_llm.frames import Done, Frame, Notice, StopReason, ToolCall

INCOMPLETE: Final = "tool_call_incomplete"
AGAIN: Final = "tool_call_again"
_ODD: Final = re.compile(r"[^a-zA-Z0-9_-]")
_MADE_UP: Final = re.compile(r"call_\d{1,3}")
_PLAIN_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_KEPT: Final = 40
_DIGITS: Final = 16


class UnclosedCall(HearthNetError):
    """An answer that called a tool, and of whose calls none ever became whole; `spent` is how it ended."""

    def __init__(self, model: str, spent: Done) -> None:
        error = failures.unclosed(model)
        super().__init__(error.code, error.message)
        self.spent = spent


class Unclosed:
    """Watches the frames of one answer: a model that called and never closed a call has not answered.

    With other calls that are whole, or at the limit of tokens, the notice is enough.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._broken = False
        self._called = False

    def passed(self, frame: Frame) -> Frame:
        """The frame again; `UnclosedCall` (internal_error) in place of the end of such an answer."""
        if isinstance(frame, ToolCall):
            self._called = True
        elif isinstance(frame, Notice) and frame.code == INCOMPLETE:
            self._broken = True
        elif isinstance(frame, Done) and frame.stop_reason == "end" and self._broken and not self._called:
            raise UnclosedCall(self._model, frame)
        return frame


class CallIds:
    """Gives each call an id of its own: the vendor's where it is new, else a made-up `call_<n>`."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def take(self, wanted: Any) -> str:
        """The id for the next call."""
        number = len(self._given) + 1
        made = wanted if isinstance(wanted, str) and wanted else f"call_{number}"
        while made in self._given:
            made = f"call_{number}"
            number += 1
        self._given.add(made)
        return made


def is_made_up(call_id: str) -> bool:
    """Whether an id is one of ours, which a vendor that needs none never sees. Gemini's own are such as
    call_46063: ours have few digits.
    """
    return _MADE_UP.fullmatch(call_id) is not None


def plain_id(call_id: str) -> str:
    """The id for a vendor that takes up to 64 letters, digits, `_` and `-`: the same for what fits, else one
    that follows from it. Other vendors' models give ids such as functions.search:0.
    """
    if _PLAIN_ID.fullmatch(call_id):
        return call_id
    return f"{_ODD.sub('_', call_id)[:_KEPT]}_{content_hash(call_id.encode())[-_DIGITS:]}"


def arguments(given: Any) -> dict[str, Any] | None:
    """The arguments of a call, from an object or from its JSON text; None if they are no whole object, or
    hold what JSON does not have (NaN, half a pair of surrogates) and would reach the tool as something else.
    """
    if given is None or (isinstance(given, str) and given.strip() in ("", "null")):
        return {}
    try:
        if isinstance(given, str):
            given = msgspec.json.decode(given)
        elif isinstance(given, dict):
            json.dumps(given, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return given if isinstance(given, dict) else None


def incomplete(model: str, tool: str) -> Notice:
    """The notice of a call that never became whole."""
    return Notice(
        INCOMPLETE,
        f"{model} sent a call of {tool or 'a tool'} "
        "whose arguments are no complete JSON object; it was left out",
    )


def tool_name(given: Any) -> str:
    """The name of a tool as the contract has names; a model may make up any, and what it made up must not
    become the name of another tool.
    """
    return stand_in(given) if isinstance(given, str) and given else ""


def call(model: str, call_id: str, name: Any, given: Any, signature: str | None = None) -> ToolCall | Notice:
    """The complete call, or a notice."""
    parsed, tool = arguments(given), tool_name(name)
    if parsed is None or not tool:
        return incomplete(model, tool)
    return ToolCall(call_id, tool, parsed, signature)


def stop_reason(reason: StopReason, called: bool) -> StopReason:
    """`tool_calls` where there are calls and nothing else stopped it, and only there."""
    if called and reason in ("end", "tool_calls"):
        return "tool_calls"
    return "end" if reason == "tool_calls" else reason
