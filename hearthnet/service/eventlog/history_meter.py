"""The meter of history that a home asked for, apart from the budget for announced events.

    room of a line    what each home could have taken in of it since the newest entry here; at a newcomer,
                      since the community was founded
    room of all       megabytes a day, of the home's own choice
    processor time    a share of one core, of the home's own choice: a rest follows each page, as far as the
                      home did not wait for the page and for its disk meanwhile

See: docs/protocol/log.md#budgets, docs/decisions/0234.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hearthnet.core.config import CommunityConfig
from hearthnet.core.rate_limits import LineBudgets, TokenBucket
from hearthnet.core.times import steady_ms

LINE_BYTES: Final = 64_000_000
LINE_BYTES_PER_SECOND: Final = 16_000_000 / 86_400
"""Room for what one line of invitation adds at this home: 64 MB at once, as after a month away, and 16 MB a
day. Identities cost nothing, so what one author may write a day is no bound.
"""
_ALL: Final = "all"
_MB: Final = 1_000_000
_DAY_SECONDS: Final = 86_400


class HistoryMeter:
    """The room and the rests that `chosen` gives, at a home that has heard nothing for `away_seconds`."""

    def __init__(self, chosen: CommunityConfig, away_seconds: float) -> None:
        missed = LINE_BYTES_PER_SECOND * max(0.0, away_seconds)
        self._lines = LineBudgets(LINE_BYTES + missed, LINE_BYTES_PER_SECOND)
        self._all = TokenBucket(chosen.history_mb * _MB, chosen.history_mb * _MB / _DAY_SECONDS)
        self._share = chosen.history_cpu / 100

    @property
    def is_spent(self) -> bool:
        """Return whether this home has fetched all that it wants of a day."""
        return self._all.left(_ALL, steady_ms()) <= 0

    def take(self, line: Sequence[str], size: int) -> bool:
        """Charge `size` bytes of an author with that line and return True; False if there is no room."""
        now = steady_ms()
        if self.is_spent or not self._lines.take(line, size, now):
            return False
        self._all.spend(_ALL, size, now)
        return True

    def rest(self, cpu_seconds: float, seconds: float) -> float:
        """Return the seconds to rest after a page that took so much processor time, within `seconds`."""
        return max(0.0, cpu_seconds / self._share - seconds)
