"""Limits on rates: refilled buckets, and counts in a sliding window."""

from __future__ import annotations

from collections import deque
from typing import Final

_MOST_NODES: Final = 4_096


class TokenBucket:
    """A budget per node: `burst` units at once, `per_second` in the long run; times in ms."""

    def __init__(self, burst: float, per_second: float) -> None:
        self._burst = burst
        self._per_ms = per_second / 1000
        self._left: dict[str, tuple[float, int]] = {}

    def take(self, node: str, units: float, now_ms: int) -> bool:
        """Spend `units` of `node` and return True, or return False if fewer are left.

        More than `burst` units are never available.
        """
        granted = units <= self.left(node, now_ms)
        if granted:
            self.spend(node, units, now_ms)
        return granted

    def left(self, node: str, now_ms: int) -> float:
        """Return the units left for `node`; negative after `spend` beyond them."""
        left, since = self._left.get(node, (self._burst, now_ms))
        return min(self._burst, left + max(0, now_ms - since) * self._per_ms)

    def spend(self, node: str, units: float, now_ms: int) -> None:
        """Subtract `units` from those of `node`, even if fewer are left."""
        left = self.left(node, now_ms) - units
        if node not in self._left and len(self._left) >= _MOST_NODES:
            self._left.clear()
        self._left[node] = (left, now_ms)


WINDOW_MS: Final = 60_000
_MANY: Final = 1_024
_SWEEP_MS: Final = 1_000
"""Pause between sweeps for old windows, since each costs time for every window kept."""


class Rates:
    """The times of accepted calls, by key, kept in memory for a minute."""

    def __init__(self) -> None:
        self._passed: dict[tuple[str, str], deque[int]] = {}
        self._sweep_at = 0

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
