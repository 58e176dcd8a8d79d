"""Deadlines of many calls, nearly all of which end before: one timer of the loop for all that fall into the
same 50 ms. A timer for each would cost more than everything else that a call waits with.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

_log = logging.getLogger(__name__)
_SLOTS_A_SECOND: Final = 20


class Waiting(Protocol):
    """Something with a deadline."""

    def due(self) -> None:
        """The time has come; up to 50 ms late."""


class Alarms:
    """Who is to be called when. Take it out of the set that `at` returns, and it is not called."""

    def __init__(self) -> None:
        self._slots: dict[int, set[Waiting]] = {}

    def at(self, when: float, waiting: Waiting) -> set[Waiting]:
        """Calls `waiting.due` soon after the loop time `when`, unless it is taken out of this set before."""
        slot = int(when * _SLOTS_A_SECOND) + 1
        those = self._slots.get(slot)
        if those is None:
            those = self._slots[slot] = set()
            asyncio.get_running_loop().call_at(slot / _SLOTS_A_SECOND, self._ring, slot)
        those.add(waiting)
        return those

    def _ring(self, slot: int) -> None:
        for waiting in self._slots.pop(slot):
            try:
                waiting.due()
            except Exception:
                # The others would wait for ever.
                _log.exception("as a deadline passed")
