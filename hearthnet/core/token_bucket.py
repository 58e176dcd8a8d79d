"""Work budgets of other nodes: pure arithmetic, time is an argument (docs/decisions/0043)."""

from __future__ import annotations

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
