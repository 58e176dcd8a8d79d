"""The terms of one service as they are in force in its process, and the checks of calls by them.

The file is looked at once a second. A damaged one shares nothing with others until it can be read.

See: docs/sharing.md, docs/protocol/admission.md#terms-of-sharing.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from datetime import tzinfo
from typing import Final

from hearthnet.bus.session.session import Session
from hearthnet.bus.session.usage_meter import BookedTime, is_of_community
from hearthnet.core.errors import (
    DAY_USED_UP,
    NOT_SHARED_NOW,
    NOT_SHARED_WITH,
    HearthNetError,
    Overloaded,
    Unauthorized,
)
from hearthnet.core.times import local_day
from hearthnet.service.sharing.terms import (
    Terms,
    hours_in_words,
    read_terms,
    until_next_day_ms,
)
from hearthnet.trust.community.roster import RANK

_log = logging.getLogger(__name__)
_FREE: Final = Terms()
_CLOSED: Final = Terms(audience="nobody")


class SharedService:
    """The terms of the service of one process.

    `running` returns the seconds for which calls of a home have been running here. `zone` is that of this
    computer if none is given.
    """

    def __init__(
        self, peer: Session, service: str, running: Callable[[str], float], zone: tzinfo | None = None
    ) -> None:
        self._peer = peer
        self._service = service
        self._running = running
        self._zone = zone
        self._terms = _FREE
        self._read: tuple[int, int] | None = None
        """Inode and time of the file that was read, None without one."""
        self._is_open = True
        self._booked = BookedTime("", {}, 0)
        """The processing time of each home on a day, of all processes."""
        self._opens_at_ms = 0

    @property
    def is_offered(self) -> bool:
        """Whether other homes are to know of its offers now."""
        return self._is_open and self._terms.audience != "nobody"

    @property
    def least_level(self) -> str:
        """The level that the terms require of other homes; empty if none."""
        return "trusted" if self._terms.audience == "trusted" else ""

    def refresh(self, now_ms: int) -> bool:
        """Read the terms again if they changed, and the usage of the day; blocks.

        Return whether other homes are to be informed of a change.
        """
        before = self.is_offered, self.least_level
        try:
            self._read_terms()
        except HearthNetError as error:
            if self._terms is not _CLOSED:
                _log.error("%s is shared with nobody: %s", self._service, error.message)
            self._terms = _CLOSED
        self._is_open = self._terms.is_open(now_ms, self._zone)
        if self._terms.per_day_seconds is not None:
            self._read_usage(now_ms)
        return before != (self.is_offered, self.least_level)

    def check(self, capability: str, home: str, nodes: set[str], now_ms: int) -> None:
        """Check that a call of another home may run now; `nodes` are those whose level counts.

        Raises:
            Unauthorized: The service is not shared with it.
            Overloaded: `rate_limited` until the hours begin, or until the next day.
        """
        terms = self._terms
        if terms is _FREE or is_of_community(capability):
            return
        if terms.audience == "nobody":
            raise Unauthorized(f"{self._service} is not shared by this home", rule=NOT_SHARED_WITH)
        roster = self._peer.roster
        if self.least_level and any(RANK[roster.level(node)] < RANK[self.least_level] for node in nodes):
            raise Unauthorized(
                f"this home shares {self._service} with its trusted members alone", rule=NOT_SHARED_WITH
            )
        if terms.hours is not None and not terms.is_open(now_ms, self._zone):
            hours = hours_in_words(terms.hours)
            raise Overloaded(
                f"this home shares {self._service} from {hours}, by its own clock",
                code="rate_limited",
                rule=NOT_SHARED_NOW,
                details={"hours": hours},
                retry_after_ms=self._until_open_ms(now_ms),
            )
        if terms.per_day_seconds is not None and self._used_ms(home, now_ms) >= terms.per_day_seconds * 1000:
            raise Overloaded(
                f"your home has used the {terms.per_day_seconds / 60:.10g} minutes of {self._service} that "
                "this home gives each member in a day; ask again tomorrow",
                code="rate_limited",
                rule=DAY_USED_UP,
                details={"limit": terms.per_day_seconds},
                retry_after_ms=until_next_day_ms(now_ms, self._zone),
            )

    def _read_terms(self) -> None:
        try:
            status = self._peer.home.sharing.stat()
            found = status.st_ino, status.st_mtime_ns
        except OSError:
            found = None
        if found != self._read or self._terms is _CLOSED:
            terms = read_terms(self._peer.home.sharing).get(self._service, _FREE)
            self._terms = _FREE if terms == _FREE else terms
            self._read, self._opens_at_ms = found, 0

    def _read_usage(self, now_ms: int) -> None:
        try:
            self._booked = self._peer.usage.booked(local_day(now_ms, self._zone))
        except (OSError, sqlite3.Error) as error:
            _log.warning("the usage of today is not read now: %s", error)

    def _used_ms(self, home: str, now_ms: int) -> float:
        day, booked = local_day(now_ms, self._zone), self._booked
        is_today = day == booked.day
        used = booked.served_ms.get(home, 0) if is_today else 0
        used += self._peer.usage.pending_ms(day, home, booked.batch if is_today else 0)
        return used + self._running(home) * 1000

    def _until_open_ms(self, now_ms: int) -> int:
        if self._opens_at_ms <= now_ms:
            self._opens_at_ms = now_ms + self._terms.until_open_ms(now_ms, self._zone)
        return self._opens_at_ms - now_ms
