"""Assembly of tool calls from deltas.

Variants seen in recorded exchanges, all of them tolerated: calls without an id or an index (several in one
list are distinguished by their place in it), an index that starts at 1 or is the same for all, name and id
repeated on each delta, arguments as an object, empty arguments, calls that arrive complete, text in place of
arguments (tools.py; it comes with the complete call).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from hearthnet_llm.interface.frames import Frame, Notice, ToolCall, ToolCallDelta
from hearthnet_llm.vendors.calls import CallIds, arguments, call, tool_name
from hearthnet_llm.vendors.json_access import as_text, value_at
from hearthnet_llm.vendors.openai import tools


class _OpenCall(msgspec.Struct):
    """A call that is still arriving; `vendors_id` is the vendor's id of it."""

    id: str
    vendors_id: str
    pieces: list[str]
    name: str = ""
    signature: str | None = None
    is_text: bool = False

    @property
    def text(self) -> str:
        """The arguments so far."""
        joined = "".join(self.pieces)
        return as_text({tools.TEXT_ARGUMENT: joined}) if self.is_text else joined


class _Delta(NamedTuple):
    """One element of `tool_calls`; missing values are empty."""

    id: str
    slot: int | None
    name: str
    piece: str

    @classmethod
    def of(cls, native: Mapping[str, Any]) -> _Delta:
        """Return the element in this form."""
        function = native.get("function") or native.get(tools.CUSTOM) or {}
        value, index = (
            function.get("arguments", function.get(tools.TEXT_ARGUMENT)),
            native.get("index"),
        )
        piece = value if isinstance(value, str) else "" if value is None else as_text(value)
        name = str(function.get("name") or "")
        return cls(str(native.get("id") or ""), index if isinstance(index, int) else None, name, piece)

    def begins_after(self, before: _OpenCall) -> bool:
        """Return whether this is another call, with the index of one that is complete.

        If it has an id, its name is enough; without one it must also have arguments, because some servers
        repeat the name on each delta.
        """
        is_named = self.name and (self.id or (self.piece and before.text))
        return bool(is_named) and arguments(before.text) is not None


class Calls:
    """The calls of one answer; `model` is for messages."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._ids = CallIds()
        self._open: dict[int | str, list[_OpenCall]] = {}
        self._order: list[_OpenCall] = []
        self._latest: int | str = 0
        self._row: dict[int, int | str] = {}
        self.size = 0

    def feed(
        self, native: Mapping[str, Any], position: int, whole: bool, alone: bool = True
    ) -> Iterator[Frame]:
        """Yield the frames of one element of `tool_calls`, at `position` in its list.

        `whole` tells that it is of a message instead of a stream, `alone` that it is the only element.
        """
        delta = _Delta.of(native)
        place = position if whole else self._place(delta, None if alone else position)
        self._row[position] = place
        one, fresh = self._find(delta, place)
        one.name = one.name or delta.name
        one.signature = one.signature or _signature(native)
        one.pieces.append(delta.piece)
        one.is_text = one.is_text or tools.is_custom_call(native)
        self.size += len(delta.piece)
        if not whole and not one.is_text and (delta.piece or fresh):
            yield ToolCallDelta(one.id, delta.piece, (tool_name(one.name) or None) if fresh else None)

    def finish(self) -> Iterator[ToolCall | Notice]:
        """Yield each complete call in order, and a notice for each incomplete one."""
        for one in self._order:
            yield call(self._model, one.id, one.name, one.text, one.signature)

    def _find(self, delta: _Delta, place: int | str) -> tuple[_OpenCall, bool]:
        """Return the call at `place` to which a delta belongs, and whether it is a new one."""
        calls = self._open.setdefault(place, [])
        self._latest = place
        for one in reversed(calls):
            if delta.id and one.vendors_id == delta.id:
                return one, False
        if calls and not delta.begins_after(calls[-1]):
            return calls[-1], False
        made = _OpenCall(self._ids.assign(delta.id), delta.id, [])
        calls.append(made)
        self._order.append(made)
        return made, True

    def _place(self, delta: _Delta, position: int | None) -> int | str:
        """Return the place of a delta: its index, else its id, else a new place if it has a name.

        Otherwise it is found by `position` among those of one list.
        """
        if delta.slot is not None:
            return delta.slot
        if delta.id:
            return delta.id
        if delta.name or not self._order:
            return f"#{len(self._order)}"
        return self._latest if position is None else self._row.get(position, self._latest)


def _signature(delta: Mapping[str, Any]) -> str | None:
    """Return Google's proof of the thought behind a call, or None."""
    value = value_at(delta, "extra_content.google.thought_signature")
    return value if isinstance(value, str) else None
