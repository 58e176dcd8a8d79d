"""Assignment of results to calls in protocols whose calls may lack ids.

Such calls get generated ids, and a result finds its call by the tool's name.
"""

from __future__ import annotations

from typing import Any

from hearthnet_llm.interface.frames import ToolCall
from hearthnet_llm.vendors.calls import CallIds, is_made_up


class Pairing:
    """The calls of one conversation, in order."""

    def __init__(self) -> None:
        self._ids = CallIds()
        self._waiting: list[ToolCall] = []

    def called(self, given: Any) -> str:
        """Return the id of a new call: its own, or a generated one."""
        return self._ids.take(given)

    def asked(self, calls: list[ToolCall]) -> None:
        """Set the calls that are answered next."""
        self._waiting = [call for call in calls if is_made_up(call.id)]

    def answered(self, given: Any, name: str | None) -> str:
        """Return the id of the call that a result answers.

        It is the result's own, else that of the first call of its tool, or of the first call if no tool is
        named.
        """
        if isinstance(given, str) and given:
            return given
        for place, call in enumerate(self._waiting):
            if name in (None, call.name):
                return self._waiting.pop(place).id
        return self._ids.take(None)
