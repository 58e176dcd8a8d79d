"""Values that some protocols write as text and others as JSON."""

from __future__ import annotations

import json
from typing import Any

import msgspec


def parsed(text: str) -> Any:
    """Return the value of a JSON text, or None if it is none.

    The first attempt is strict, which is fast; the second accepts deviations of servers (NaN, an unpaired
    surrogate, a line break within a string).
    """
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        pass
    try:
        whole = json.dumps(json.loads(text, strict=False), ensure_ascii=False).encode("utf-8", "replace")
        return json.loads(whole)
    except ValueError:
        return None


def as_text(value: Any) -> str:
    """Return compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
