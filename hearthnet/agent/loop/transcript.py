"""The messages for the model: its own turn, results, notes about limits.

A tool's result is data. It is put into a message of role `tool` as JSON text, so that all of its content
stays inside a JSON string; an error begins with its code.

See: docs/protocol/agent.md#results-as-the-model-reads-them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from hearthnet.agent.loop.state import RunState

INVALID: Final = "invalid_arguments"
DEEPEST: Final = 64
"""The deepest nesting of arguments: a value with much deeper nesting could be saved, but not read again."""
MAX_MESSAGE: Final = 500
_ENCODE: Final = msgspec.json.Encoder(order=None).encode


def json_text(value: Any) -> str:
    """Return the compact JSON text of a result."""
    return _ENCODE(value).decode("utf-8")


def too_deep(value: Any) -> bool:
    """Return whether a JSON value is nested deeper than `DEEPEST`."""
    level = [value]
    for _ in range(DEEPEST + 1):
        deeper: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                deeper.extend(one.values())
            elif isinstance(one, list):
                deeper.extend(one)
        if not deeper:
            return False
        level = deeper
    return True


def fit(text: str, max_bytes: int) -> str:
    """Return `text`, or a JSON object with its head and a note where it is too large.

    Either has at most `max_bytes` of UTF-8.
    """
    raw = text.encode("utf-8")
    if len(raw) <= max_bytes:
        return text

    def cut(length: int) -> str:
        head = raw[:length].decode("utf-8", "ignore")
        note = f"only the first {length} of {len(raw)} bytes are shown; ask for less"
        return json_text({"truncated": True, "note": note, "head": head})

    return cut(largest(max_bytes, lambda length: len(cut(length).encode("utf-8")) <= max_bytes))


def largest(most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `most` that fits, 0 where none does.

    Where a number fits, all smaller ones must fit as well.
    """
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def error_text(code: str, message: str) -> str:
    """Return `code: message`, on one line and of bounded length.

    The message may come from another node.
    """
    return f"{code}: {' '.join(message.split())[:MAX_MESSAGE]}"


def turn(state: RunState) -> list[dict[str, Any]]:
    """Return the assistant's message with its calls, then one message per result, in order.

    Parts that a vendor requires back (thoughts, seals of calls, the work of its own tools) are returned
    unchanged.
    """
    said: dict[str, Any] = {
        "role": "assistant",
        "content": _content(state),
        "tool_calls": [
            {"id": call.id, "name": call.model_name, "arguments": call.arguments, **call.sealed}
            for call in state.calls
        ],
    }
    if state.thoughts:
        said["thinking"] = state.thoughts
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": call.content, "is_error": call.is_error}
        for call in state.calls
    ]
    return [said, *results]


def results(state: RunState) -> list[dict[str, Any]]:
    """Return the results of the calls of a turn, for the caller to whom the turn is returned."""
    ends = {record.tool_call_id: record.status for record in state.records}
    return [
        {
            "tool_call_id": call.id,
            "name": call.name,
            "status": ends[call.id],
            "is_error": call.is_error,
            "content": call.content,
        }
        for call in state.calls
    ]


def _content(state: RunState) -> str | list[dict[str, Any]]:
    """Return the text; with the work of a vendor's own tools, parts of both in their order."""
    if not state.served:
        return "".join(state.text)
    parts: list[dict[str, Any]] = []
    said = 0
    for before, part in [*state.served, (len(state.text), {})]:
        if text := "".join(state.text[said:before]):
            parts.append({"type": "text", "text": text})
        said = before
        if part:
            parts.append(part)
    return parts


def limit_note(told: str) -> dict[str, Any]:
    """Return the user message to the model that the limit `told`, in words, is reached.

    See: docs/protocol/agent.md#limits.
    """
    text = (
        f"[The limit of {told} for this question is reached. No further tool can be called. "
        "Finish now: answer with what the results above say, and say what is missing.]"
    )
    return {"role": "user", "content": text}
