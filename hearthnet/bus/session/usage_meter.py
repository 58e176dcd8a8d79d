"""The calls between this process and other homes, counted and added to the home's book.

A process adds its counts a second after the first of them, and when it ends; a kill loses that second. Calls
of this home's own nodes are not counted, nor those by which homes are a community.

See: docs/sharing.md#who-used-what.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from hearthnet.bus.session.usage_book import Direction, UsageBook, UsageCount, UsageKey
from hearthnet.core.home import Home
from hearthnet.core.times import local_day, now_ms
from hearthnet.trust.community.roster import Roster

_log = logging.getLogger(__name__)
_DELAY_SECONDS: Final = 1.0
_MOST_TOKENS: Final = 2**32
_MOST_UNREAD: Final = 8
"""Batches of counts that are remembered until the book was read: once a second, where a limit holds."""
_COMMUNITY: Final = ("community", "node", "auth")
_ENDS_COPIES: Final = "rag.manifest"
"""The capability by which homes look whether a corpus that they copy is there, and read that copies end."""


def is_of_community(capability: str) -> bool:
    """Return whether a capability makes homes a community: it is neither counted nor limited."""
    name = capability.partition("@")[0]
    return name == _ENDS_COPIES or name.partition(".")[0] in _COMMUNITY


def home_of(roster: Roster, own: str, node: str) -> str:
    """Return the person whose `node` is, or itself; "" for this node `own`, and for others of its owner."""
    person = roster.person_of(node)
    if not person:
        return "" if node == own else node
    return "" if person == roster.person_of(own) else person


class BookedTime(NamedTuple):
    """The processing time of each home in ms on a day, by the book; it has the batches up to `batch`."""

    day: str
    served_ms: Mapping[str, int]
    batch: int


class UsageMeter:
    """The counts of one process that are not in the book yet.

    A batch of counts is remembered until the book was read with it, so that none is overlooked on its way.
    """

    def __init__(self, home: Home, own: str, roster: Callable[[], Roster]) -> None:
        """Take the node `own`, and a function that returns the present roster."""
        self.book = UsageBook(home.usage)
        self.service = ""
        """The service that this process runs."""
        self._own = own
        self._roster = roster
        self._counts: dict[UsageKey, UsageCount] = {}
        self._rest_us: dict[str, int] = {}
        self._unread: dict[int, dict[UsageKey, UsageCount]] = {}
        self._batch = self._written = 0
        self._flushing = asyncio.Lock()
        self._book_lock = threading.Lock()
        self._task: asyncio.Task[None] | None = None
        self._cleaned = ""
        """The last day on which homes that have left were removed."""

    def served(self, home: str, capability: str, seconds: float, meta: Mapping[str, Any]) -> None:
        """Count a call that this process has answered for another home."""
        if not self._is_known(home) or is_of_community(capability):
            return
        # What is less than a millisecond goes to the next call: else short calls would cost nothing.
        whole_ms = int((us := self._rest_us.get(home, 0) + round(seconds * 1e6)) // 1000)
        self._rest_us[home] = us - whole_ms * 1000
        self._count("served", home, self.service, capability, whole_ms, meta)

    def used(self, node: str, capability: str, took_ms: int, meta: Mapping[str, Any]) -> None:
        """Count a call that `node` has answered within `took_ms`."""
        if node == self._own or is_of_community(capability):
            return
        home = home_of(self._roster(), self._own, node)
        if home:
            # Its own word, as long as that is possible: the rest is the way, and waiting for a place.
            self._count("used", home, "", capability, _number(meta.get("ms"), took_ms, took_ms), meta)

    def booked(self, day: str) -> BookedTime:
        """Return what the service of this process has booked on a day; blocks. Raises as `UsageBook`."""
        with self._book_lock:
            return BookedTime(day, self.book.served_ms(day, self.service), self._written)

    def pending_ms(self, day: str, home: str, after: int = 0) -> int:
        """Return the processing time of a home here that is not in the book, or in a batch `after` that."""
        self._forget(number for number in self._unread if number <= after)
        return sum(
            count.ms
            for counts in (self._counts, *self._unread.values())
            for key, count in counts.items()
            if key.direction == "served" and key.home == home and key.day == day
        )

    async def flush(self) -> None:
        """Add the counts to the book; where that fails they are kept for the next time."""
        async with self._flushing:
            counts, self._counts = self._counts, {}
            if not counts:
                return
            self._batch += 1
            self._unread[self._batch] = counts
            self._forget(list(self._unread)[:-_MOST_UNREAD])
            try:
                await asyncio.to_thread(self._write, self._batch, counts)
            except (OSError, sqlite3.Error) as error:
                _log.warning("usage is not written now, it will be: %s", error)
                self._forget([self._batch])
                for key, count in self._counts.items():
                    counts[key] = counts[key].plus(count) if key in counts else count
                self._counts = counts

    def _forget(self, batches: Iterable[int]) -> None:
        for number in tuple(batches):
            self._unread.pop(number, None)

    async def close(self) -> None:
        """Add the rest to the book."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self.flush()

    def _write(self, batch: int, counts: dict[UsageKey, UsageCount]) -> None:
        with self._book_lock:
            self.book.add(counts.items())
            self._written = batch
        today = max(key.day for key in counts)
        if today != self._cleaned:
            try:
                self.book.keep_only(self._is_known)
                self._cleaned = today
            except (OSError, sqlite3.Error) as error:  # the counts are in the book, and not added again
                _log.warning("usage of homes that left is removed later: %s", error)

    def _is_known(self, home: str) -> bool:
        """Return whether `home` is a member, a person, or answered for members before it was removed."""
        roster = self._roster()
        if not home or roster.member(home) is not None or roster.person(home) is not None:
            return bool(home)
        return any(roster.answerable(one.node_id) == home for one in roster.members)

    def _count(
        self,
        direction: Direction,
        home: str,
        service: str,
        capability: str,
        ms: int,
        meta: Mapping[str, Any],
    ) -> None:
        key = UsageKey(local_day(now_ms()), direction, home, service, capability)
        tokens = (_number(meta.get(name), 0, _MOST_TOKENS) for name in ("tokens_in", "tokens_out"))
        count, before = UsageCount(1, ms, *tokens), self._counts.get(key)
        self._counts[key] = count if before is None else before.plus(count)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._flush_soon(), name="usage")

    async def _flush_soon(self) -> None:
        await asyncio.sleep(_DELAY_SECONDS)
        self._task = None
        await self.flush()


def _number(value: object, otherwise: int, most: int) -> int:
    """Return a number that a provider states, if it is one from 0 to `most`."""
    return value if type(value) is int and 0 <= value <= most else otherwise
