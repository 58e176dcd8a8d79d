"""Whether a frame is what its type says: vendors' JSON may hold anything anywhere."""

from __future__ import annotations

from typing import Any

import msgspec

from hearthnet_llm.frames import Frame, Served

MISSHAPEN = (AttributeError, TypeError, ValueError, KeyError, IndexError, OverflowError)
"""What comes of reading JSON that is of another shape than the vendor's reference has it."""


def checked(frame: Frame) -> Frame:
    """The frame; ValueError for one that holds values of other types than it declares, or a nameless tool."""
    if isinstance(frame, Served) and not getattr(frame.part, "name", True):
        raise ValueError("a tool without a name")
    return msgspec.convert(msgspec.to_builtins(frame), type(frame))


def count(value: Any) -> int:
    """A number of tokens; 0 for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def counted(value: Any) -> int | None:
    """A number of tokens; None where there is none."""
    return None if value is None else count(value)
