"""The text of results and errors as the model reads them: JSON, on one line, of bounded length.

See: docs/protocol/agent.md#results-as-the-model-reads-them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

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
