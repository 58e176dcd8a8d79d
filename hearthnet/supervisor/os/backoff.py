"""The delay before a crashed process is started again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

FIRST_SECONDS: Final = 0.5
LONGEST_SECONDS: Final = 30.0
HEALTHY_SECONDS: Final = 60.0


class Backoff:
    """Doubling delays from 0.5 to 30 seconds, reset by a process that lived for a minute.

    `random` returns a number from 0 to 1: each delay is shortened by up to a quarter, so that several
    processes that crashed together do not restart together.
    """

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._failures = 0

    def wait(self, lasted: float) -> float:
        """Return the delay in seconds after a process that lived for `lasted` seconds."""
        if lasted >= HEALTHY_SECONDS:
            self._failures = 0
        full = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0**self._failures)
        self._failures = min(self._failures + 1, 16)
        return max(FIRST_SECONDS, full * (1 - self._random() / 4))
