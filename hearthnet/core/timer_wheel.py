"""Deadlines of many calls, most of which end before: one timer for each slot of 50 ms.

One timer per call would cost more than all other parts of waiting.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

_log = logging.getLogger(__name__)
_SLOTS_A_SECOND: Final = 20


class Timer(Protocol):
    """An object with a deadline."""

    def due(self) -> None:
        """Handle the deadline; called up to 50 ms late."""


class TimerWheel:
    """The pending deadlines; removal from the set that `at` returns cancels one."""

    def __init__(self) -> None:
        self._slots: dict[int, set[Timer]] = {}

    def at(self, when: float, waiting: Timer) -> set[Timer]:
        """Call `waiting.due` soon after the loop time `when`, unless removed from the result."""
        slot = int(when * _SLOTS_A_SECOND) + 1
        timers = self._slots.get(slot)
        if timers is None:
            timers = self._slots[slot] = set()
            asyncio.get_running_loop().call_at(slot / _SLOTS_A_SECOND, self._ring, slot)
        timers.add(waiting)
        return timers

    def _ring(self, slot: int) -> None:
        for waiting in self._slots.pop(slot):
            try:
                waiting.due()
            except Exception:
                # The other deadlines of this slot must still be handled.
                _log.exception("as a deadline passed")
