"""Tool calls put together from deltas.

Quirks seen in recorded exchanges, all of them tolerated: calls without an id or an index, an index that
starts at 1 or is the same for all, name and id repeated on each delta, arguments as an object, empty
arguments, calls that come whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from hearthnet_llm.frames import Frame, Notice, ToolCall, ToolCallDelta
from hearthnet_llm.vendors.calls import CallIds, arguments, call
from hearthnet_llm.vendors.values import as_text


class _Open(msgspec.Struct):
    """A call that is still coming in; `given` is the id that the vendor has for it."""

    id: str
    given: str
    pieces: list[str]
    name: str = ""
    signature: str | None = None

    @property
    def text(self) -> str:
        """The arguments so far."""
        return "".join(self.pieces)


class Calls:
    """The calls of one answer; `model` is for messages."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._ids = CallIds()
        self._open: dict[int | str, list[_Open]] = {}
        self._order: list[_Open] = []
        self._latest: int | str = 0
        self.size = 0

    def feed(self, delta: Mapping[str, Any], position: int, whole: bool) -> Iterator[Frame]:
        """One element of `tool_calls`, at `position` in its list; `whole`: of a message that is no stream."""
        function = delta.get("function") or {}
        call, fresh = self._find(delta, position, bool(function.get("name")), whole)
        call.name = call.name or str(function.get("name") or "")
        call.signature = call.signature or _signature(delta)
        given = function.get("arguments")
        piece = given if isinstance(given, str) else "" if given is None else as_text(given)
        if piece:
            call.pieces.append(piece)
            self.size += len(piece)
        if not whole and (piece or fresh):
            yield ToolCallDelta(call.id, piece, call.name if fresh and call.name else None)

    def finish(self) -> Iterator[ToolCall | Notice]:
        """Each complete call in order, and a notice for each that never became complete."""
        for one in self._order:
            yield call(self._model, one.id, one.name, one.text, one.signature)

    def _find(self, delta: Mapping[str, Any], position: int, named: bool, whole: bool) -> tuple[_Open, bool]:
        """The call that a delta belongs to, and whether it is a new one."""
        given = str(delta.get("id") or "")
        place = self._place(delta.get("index"), given, position, named, whole)
        known = self._open.get(place, [])
        self._latest = place
        for one in reversed(known):
            if one.given == given or not given:
                return one, False
        if known and not self._another(known[-1], named):
            return known[-1], False
        made = _Open(self._ids.take(given), given, [])
        self._open.setdefault(place, []).append(made)
        self._order.append(made)
        return made, True

    def _another(self, known: _Open, named: bool) -> bool:
        """Whether a delta with a new id begins another call under the index of one that is complete."""
        return named and arguments(known.text) is not None

    def _place(self, index: Any, given: str, position: int, named: bool, whole: bool) -> int | str:
        """By position in a whole message, else by index, else by id; else a name starts a call."""
        if whole:
            return position
        if isinstance(index, int):
            return index
        if given:
            return given
        return f"#{len(self._order)}" if named or not self._order else self._latest


def _signature(delta: Mapping[str, Any]) -> str | None:
    """Google's proof of the thought behind a call."""
    value: Any = delta
    for step in ("extra_content", "google", "thought_signature"):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else None
