"""How often this process may ask again: a share of its calls, and a few.

Where everything is full or slow, asking again makes it worse. A process whose calls go well has saved up
enough to get over a process that restarts; one whose calls all fail soon asks only once each.

See: docs/protocol/discovery.md#what-may-be-repeated.
"""

from __future__ import annotations

from typing import Final

SHARE: Final = 0.1
"""What a call adds."""
MOST: Final = 100.0
AT_FIRST: Final = 20.0
PER_SECOND: Final = 10.0


class Retries:
    """The budget of one process for asking again. Times are milliseconds of a clock that does not jump."""

    def __init__(self, now_ms: int) -> None:
        self._left = AT_FIRST
        self._since = now_ms

    def earn(self) -> None:
        """A call was begun."""
        self._left += SHARE

    def take(self, now_ms: int) -> bool:
        """Whether something may be asked once more; that is counted."""
        earned = (now_ms - self._since) / 1000 * PER_SECOND
        self._left, self._since = min(MOST, self._left + earned), now_ms
        if self._left < 1:
            return False
        self._left -= 1
        return True
