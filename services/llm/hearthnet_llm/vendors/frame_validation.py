"""Validation of frames against their types, because vendors' JSON may have any values."""

from __future__ import annotations

from typing import Any

import msgspec

from hearthnet_llm.interface.frames import Frame, ServerToolEvent

MISSHAPEN = (AttributeError, TypeError, ValueError, KeyError, IndexError, OverflowError)
"""Exceptions of reading JSON that deviates from the vendor's reference."""


def checked(frame: Frame) -> Frame:
    """Return the frame.

    Raises:
        ValueError: it has values of other types than declared, or a tool without a name.
    """
    if isinstance(frame, ServerToolEvent) and not getattr(frame.part, "name", True):
        raise ValueError("a tool without a name")
    return msgspec.convert(msgspec.to_builtins(frame), type(frame))


def count(value: Any) -> int:
    """Return a number of tokens, 0 for an invalid one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def counted(value: Any) -> int | None:
    """Return a number of tokens, or None without one."""
    return None if value is None else count(value)
