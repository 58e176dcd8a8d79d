"""The budget of this process for repetitions: a share of its calls, and a few per second.

If all providers are full or slow, repetitions make it worse. A process whose calls succeed has saved enough
to bridge a provider's restart; one whose calls all fail soon sends each call only once.

See: docs/protocol/discovery.md#what-may-be-repeated.
"""

from __future__ import annotations

from typing import Final

SHARE: Final = 0.1
"""The gain per call."""
MOST: Final = 100.0
AT_FIRST: Final = 20.0
PER_SECOND: Final = 10.0


class Retries:
    """The repetition budget of one process; times are milliseconds of a monotonic clock."""

    def __init__(self, now_ms: int) -> None:
        self._left = AT_FIRST
        self._since = now_ms

    def earn(self) -> None:
        """Record that a call began."""
        self._left += SHARE

    def spend(self, now_ms: int) -> bool:
        """Spend one repetition and return True; False if none is left."""
        earned = (now_ms - self._since) / 1000 * PER_SECOND
        self._left, self._since = min(MOST, self._left + earned), now_ms
        if self._left < 1:
            return False
        self._left -= 1
        return True
