"""Limits on rates: refilled buckets, and counts in a sliding window."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

_MOST_NODES: Final = 4_096
_EVICTED: Final = 512
"""Nodes forgotten at a time: those with the most left, who gain the least by it."""


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
            for fullest in sorted(self._left, key=lambda one: -self.left(one, now_ms))[:_EVICTED]:
                del self._left[fullest]
        self._left[node] = (left, now_ms)


class LineBudgets:
    """Budgets of users that answer for one another.

    A line is a user, the one who answers for it, the one who answers for that one, and so on. What a user
    spends is charged to its whole line: however many stand below the last one, they share its budget. All but
    the last one may use half as much, and leave it room.
    """

    def __init__(self, burst: float, per_second: float) -> None:
        self._last = TokenBucket(burst, per_second)
        self._others = TokenBucket(burst / 2, per_second / 2)

    def left(self, line: Sequence[str], now_ms: int) -> float:
        """Return the units left for the first of `line`."""
        others = (self._others.left(one, now_ms) for one in line[:-1])
        return min([*others, self._last.left(line[-1], now_ms)])

    def spend(self, line: Sequence[str], units: float, now_ms: int) -> None:
        """Charge `units` to all of `line`, even if fewer are left."""
        for one in line[:-1]:
            self._others.spend(one, units, now_ms)
        self._last.spend(line[-1], units, now_ms)

    def take(self, line: Sequence[str], units: float, now_ms: int) -> bool:
        """Charge `units` to all of `line` and return True, or return False if fewer are left."""
        granted = units <= self.left(line, now_ms)
        if granted:
            self.spend(line, units, now_ms)
        return granted


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
