"""Call rates by a sliding window: no minute, wherever it begins, exceeds the share."""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_MS: Final = 60_000
_MANY: Final = 1_024
_SWEEP_MS: Final = 1_000
"""Pause between sweeps for old windows, since each costs time for every window kept."""


class Rates:
    """The times of accepted calls, by key, kept in memory for a minute."""

    def __init__(self) -> None:
        self._passed: dict[tuple[str, str], deque[int]] = {}
        self._sweep_at = 0

    def __len__(self) -> int:
        return len(self._passed)

    def take(self, key: tuple[str, str], share: int, now_ms: int) -> int:
        """Count one more call of `key` at `now_ms` and return 0, or the milliseconds to wait.

        `now_ms` is of a monotonic clock.
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
        """Drop keys without a call in the last minute, if there are many; at most once per second."""
        if len(self._passed) >= _MANY and now_ms >= self._sweep_at:
            self._sweep_at = now_ms + _SWEEP_MS
            alive = now_ms - WINDOW_MS
            self._passed = {key: passed for key, passed in self._passed.items() if passed[-1] > alive}
