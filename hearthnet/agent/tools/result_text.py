"""Results and errors as the model reads them: JSON, on one line, of bounded length.

A result that is too large for the model is stored as a blob: the model sees a head, a tail, and the CID under
which the whole is stored. From then on it has the tool `read_result`, which reads the results of its own run
and no others.

See: docs/protocol/agent.md#results-as-the-model-reads-them, docs/protocol/agent.md#large-results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from hearthnet.agent.tools.types import ToolDefinition

INVALID: Final = "invalid_arguments"


DEEPEST: Final = 64
"""The deepest nesting of arguments: a value with much deeper nesting could be saved, but not read again."""


MAX_MESSAGE: Final = 500


_ENCODE: Final = msgspec.json.Encoder(order=None).encode
READ_RESULT: Final = "read_result"
MOST_READ: Final = 16_384
USUAL_READ: Final = 4_096
_TAIL_SHARE: Final = 4
_MOST_A_CHARACTER: Final = 6
"""Bytes of a character that is written as an escape."""
_MOST_A_NUMBER: Final = 32
"""Bytes that a fraction takes at most; an integer has this and at most a digit per bit."""
DEFINITION: Final = ToolDefinition(
    READ_RESULT,
    "Reads a part of a result that was too large to be shown whole, by the cid that stands in it.",
    {
        "type": "object",
        "properties": {
            "cid": {"type": "string", "description": "As it stands in the result"},
            "offset": {"type": "integer", "minimum": 0, "description": "Where to begin, in bytes"},
            "length": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_READ,
                "default": USUAL_READ,
                "description": "How many bytes to read",
            },
        },
        "required": ["cid", "offset"],
        "additionalProperties": False,
    },
    None,
    None,
    False,
)


def json_text(value: Any) -> str:
    """Return the compact JSON text of a result."""
    return _ENCODE(value).decode("utf-8")


def too_deep(value: Any, most: int = DEEPEST + 1) -> bool:
    """Return whether a JSON value has more than `most` levels; its innermost values are one."""
    level = [value]
    for _ in range(most):
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


TOO_DEEP: Final = error_text(INVALID, f"/: nested deeper than {DEEPEST} levels (rule: depth)")


def surely_fits(value: Any, max_bytes: int) -> bool:
    """Return whether the JSON of `value` surely has at most `max_bytes`.

    False means that a closer look is needed. No more of a large value is visited than necessary.
    """
    room, waiting = max_bytes, [value]
    while waiting and room >= 0:
        one = waiting.pop()
        if isinstance(one, str):
            room -= _MOST_A_CHARACTER * len(one) + 4
        elif isinstance(one, dict | list):
            room -= 2 * len(one) + 4
            if room >= 0:
                waiting += one if isinstance(one, list) else [*one, *one.values()]
        elif isinstance(one, int):
            room -= one.bit_length() + _MOST_A_NUMBER
        elif one is None or isinstance(one, float):
            room -= _MOST_A_NUMBER
        else:
            return False
    return room >= 0


def excerpt(text: str, cid: str, max_bytes: int) -> dict[str, Any]:
    """Return the part of the result `text` for the model: head, tail and CID.

    Its JSON has at most `max_bytes`.
    """
    raw = text.encode("utf-8")

    def cut(length: int) -> dict[str, Any]:
        tail = length // _TAIL_SHARE
        head = length - tail
        return {
            "truncated": True,
            "bytes": len(raw),
            "cid": cid,
            "note": f"the first {head} and the last {tail} bytes are shown; {READ_RESULT} reads the rest",
            "head": raw[:head].decode("utf-8", "ignore"),
            "tail": raw[len(raw) - tail :].decode("utf-8", "ignore") if tail else "",
        }

    most = min(max_bytes, len(raw))
    return cut(largest(most, lambda length: len(json_text(cut(length)).encode("utf-8")) <= max_bytes))


def piece(data: bytes, offset: int, total: int) -> dict[str, Any]:
    """Return the output of `read_result`: the text at `offset` and the next offset."""
    end = offset + len(data)
    answer: dict[str, Any] = {"offset": offset, "bytes": total, "text": data.decode("utf-8", "ignore")}
    return {**answer, "next_offset": end} if end < total else {**answer, "end": True}
