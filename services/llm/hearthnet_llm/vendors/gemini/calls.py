"""Calls of one answer; on Vertex AI their arguments may arrive as values at paths."""

from __future__ import annotations

from typing import Any

from hearthnet_llm.interface.frames import Notice, ToolCall
from hearthnet_llm.vendors.calls import CallIds, call, incomplete
from hearthnet_llm.vendors.partial_arguments import PartialArguments
from hearthnet_llm.vendors.wire import Json


class Calls:
    """Accumulator of calls, fed with each functionCall in order; `name` is the backend's."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._ids = CallIds()
        self._open: _Open | None = None
        self.called = False

    def feed(self, native: Json, signature: Any) -> list[ToolCall | Notice]:
        """Return the calls that one functionCall completes: itself, an earlier one, or none."""
        made: list[ToolCall | Notice] = []
        if native.get("name"):
            made += self.finish()
            self._open = _Open(self._ids.take(native.get("id")), str(native["name"]), signature)
            if native.get("args") is not None:
                self._open.whole = native["args"]
        opened = self._open
        if opened is None:
            return made
        for part in native.get("partialArgs") or ():
            opened.partial.feed(part)
        if not native.get("willContinue"):
            made.append(self._close(opened))
        return made

    def finish(self) -> list[ToolCall | Notice]:
        """Return a call without a final mark; it is complete if its last value is."""
        return [] if self._open is None else [self._close(self._open)]

    def _close(self, opened: _Open) -> ToolCall | Notice:
        self._open = None
        if opened.partial.broken or opened.partial.open:
            return incomplete(self._name, opened.name)
        given = opened.partial.value if opened.whole is None else opened.whole
        made = call(self._name, opened.id, opened.name, given, opened.signature)
        self.called = self.called or isinstance(made, ToolCall)
        return made


class _Open:
    """A call whose arguments are still arriving; `whole` has those that came as one value."""

    def __init__(self, call_id: str, name: str, signature: Any) -> None:
        self.id = call_id
        self.name = name
        self.signature = signature if isinstance(signature, str) else None
        self.whole: Any = None
        self.partial = PartialArguments()
