"""Which call a result answers, on wires whose calls may have no ids: then ours are made up, and a result
finds its call by the tool's name.
"""

from __future__ import annotations

from typing import Any

from hearthnet_llm.frames import ToolCall
from hearthnet_llm.vendors.calls import CallIds, is_made_up


class Pairing:
    """The calls of one conversation, in order."""

    def __init__(self) -> None:
        self._ids = CallIds()
        self._waiting: list[ToolCall] = []

    def called(self, given: Any) -> str:
        """The id of a new call: the one it has, or a made-up one."""
        return self._ids.take(given)

    def asked(self, calls: list[ToolCall]) -> None:
        """These calls are answered next."""
        self._waiting = [call for call in calls if is_made_up(call.id)]

    def answered(self, given: Any, name: str | None) -> str:
        """The id of the call that a result answers: the one it has, else that of the first call of its tool,
        or of any, where it names none.
        """
        if isinstance(given, str) and given:
            return given
        for place, call in enumerate(self._waiting):
            if name in (None, call.name):
                return self._waiting.pop(place).id
        return self._ids.take(None)
