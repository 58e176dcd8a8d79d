"""Values that some wires want as text and others as they are."""

from __future__ import annotations

import json
from typing import Any

import msgspec


def parsed(text: str) -> Any:
    """The value of a JSON text, None where it is none: strictly at first, which is fast, then as servers
    write it (NaN, half a pair of surrogates, a line break within a text).
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
    """Compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
