"""Tool calls put together from deltas.

Quirks seen in recorded exchanges, all of them tolerated: calls without an id or an index, an index that
starts at 1 or is the same for all, name and id repeated on each delta, arguments as an object, empty
arguments, calls that come whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from hearthnet_llm.frames import Frame, Notice, ToolCall, ToolCallDelta

_NO_ARGUMENTS = ("", "null")


class _Open(msgspec.Struct):
    """A call that is still coming in."""

    id: str
    name: str = ""
    pieces: list[str] = []
    signature: str | None = None

    @property
    def arguments(self) -> dict[str, Any] | None:
        """What has come so far, if it is a whole object."""
        text = "".join(self.pieces).strip()
        if text in _NO_ARGUMENTS:
            return {}
        try:
            value = json.loads(text)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None


class Calls:
    """The calls of one answer; `model` is for messages."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._open: dict[int | str, _Open] = {}
        self._latest: int | str = 0
        self.size = 0

    def feed(self, delta: Mapping[str, Any], position: int, whole: bool) -> Iterator[Frame]:
        """One element of `tool_calls`, at `position` in its list; `whole`: of a message that is no stream."""
        function = delta.get("function") or {}
        call, fresh = self._find(delta, position, bool(function.get("name")), whole)
        call.name = call.name or str(function.get("name") or "")
        call.signature = call.signature or _signature(delta)
        given = function.get("arguments")
        piece = given if isinstance(given, str) else "" if given is None else json.dumps(given)
        if piece:
            call.pieces.append(piece)
            self.size += len(piece)
        if not whole and (piece or fresh):
            yield ToolCallDelta(call.id, piece, call.name if fresh and call.name else None)

    def finish(self) -> Iterator[ToolCall | Notice]:
        """Each complete call in order, and a notice for each that never became complete."""
        for call in self._open.values():
            arguments = call.arguments
            if arguments is None or not call.name:
                yield Notice(
                    "tool_call_incomplete",
                    f"{self._model} sent a call of {call.name or 'a tool'} "
                    "whose arguments are no complete JSON object; it was left out",
                )
            else:
                yield ToolCall(call.id, call.name, arguments, call.signature)

    def _find(self, delta: Mapping[str, Any], position: int, named: bool, whole: bool) -> tuple[_Open, bool]:
        """The call that a delta belongs to, and whether it is a new one."""
        given = str(delta.get("id") or "")
        key = self._key(delta.get("index"), given, position, named, whole)
        known = self._open.get(key)
        if known is not None and named and given not in ("", known.id) and known.arguments is not None:
            key, known = f"{key} {given}", None  # another call under the index of one that is complete
        self._latest = key
        if known is not None:
            return known, False
        taken = {call.id for call in self._open.values()}
        call = _Open(given if given and given not in taken else self._made_up(taken), pieces=[])
        self._open[key] = call
        return call, True

    def _made_up(self, taken: set[str]) -> str:
        number = len(self._open) + 1
        while f"call_{number}" in taken:
            number += 1
        return f"call_{number}"

    def _key(self, index: Any, given: str, position: int, named: bool, whole: bool) -> int | str:
        """By position in a whole message, else by index, else by id; else a name starts a call."""
        if whole:
            return position
        if isinstance(index, int):
            return index
        if given:
            return given
        return f"#{len(self._open)}" if named or not self._open else self._latest


def _signature(delta: Mapping[str, Any]) -> str | None:
    """Google's proof of the thought behind a call."""
    value: Any = delta
    for step in ("extra_content", "google", "thought_signature"):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else None
