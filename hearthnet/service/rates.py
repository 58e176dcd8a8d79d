"""Calls a minute, by a window that slides: no minute, wherever it begins, holds more than its share."""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_MS: Final = 60_000
_MANY: Final = 1_024
_SWEEP_MS: Final = 1_000
"""Looking for what can be forgotten costs time for each window that is kept."""


class Rates:
    """When calls were let through, by whose they are. Kept in memory, for a minute."""

    def __init__(self) -> None:
        self._passed: dict[tuple[str, str], deque[int]] = {}
        self._sweep_at = 0

    def __len__(self) -> int:
        return len(self._passed)

    def take(self, key: tuple[str, str], share: int, now_ms: int) -> int:
        """0 where one more call of `key` passes at `now_ms`, and is counted; else the milliseconds to wait.

        `now_ms` is of a clock that does not jump.
        """
        passed = self._passed.get(key)
        if passed is None:
            self._forget_old(now_ms)
            passed = self._passed[key] = deque()
        while passed and passed[0] <= now_ms - WINDOW_MS:
            passed.popleft()
        if len(passed) >= share:
            return passed[-share] + WINDOW_MS - now_ms
        passed.append(now_ms)
        return 0

    def _forget_old(self, now_ms: int) -> None:
        """Once there are many, drops those without a call in the last minute; once a second at most."""
        if len(self._passed) >= _MANY and now_ms >= self._sweep_at:
            self._sweep_at = now_ms + _SWEEP_MS
            alive = now_ms - WINDOW_MS
            self._passed = {key: passed for key, passed in self._passed.items() if passed[-1] > alive}
