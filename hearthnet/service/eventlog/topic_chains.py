"""The chains of one topic as one process of this home has them: in memory, and on the disk.

The text of an event is written before its entry: an entry without a text is one whose text was erased. What
another process of this home writes, this one reads from the stream.

See: docs/protocol/log.md#store.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from hearthnet.bus.session.gossip_frames import SetDigest
from hearthnet.core.canonical_json import digest
from hearthnet.service.effects.event_log import EventLog, KeptText
from hearthnet.service.eventlog.chain_store import ChainRecord, ChainStore
from hearthnet.trust.eventlog.chain_ends import read_place
from hearthnet.trust.eventlog.chains import Chains
from hearthnet.trust.eventlog.entries import LogEntry, LogEvent

PAGE_BYTES: Final = 2 * 1024 * 1024
MOST_BODIES: Final = 50
"""Bodies that one request asks for, of entries that are held without one."""
_MOST_BARE: Final = 10_000
_SLICE: Final = 50
"""Entries that are read without a break, in 3 ms: the hash of each is computed."""


class TopicChains:
    """The chains in `stored`, whose events are in `events`; `is_told` tells whose entries are exchanged."""

    def __init__(self, stored: ChainStore, events: EventLog, is_told: Callable[[str], bool]) -> None:
        self._store = stored
        self._events = events
        self._is_told = is_told
        self.writing = asyncio.Lock()
        """Held while entries are added, so that each follows the one before."""
        self.forget()

    def forget(self) -> None:
        """Drop the chains in memory, which may have more entries than the disk."""
        self.chains = Chains()
        self.published = 0
        """The place, in the topic's stream, of the last own event that has an entry."""
        self.kept = range(0)
        """The places there at which this process has stored texts of others, the last ones without a gap."""
        self.bare: dict[str, None] = {}
        """The hashes of entries that came without their body: it was erased, or kept back."""
        self._numbers: dict[str, int] = {}
        self._early: dict[str, list[tuple[int, ChainRecord]]] = {}
        """Stored entries that follow one which is not, by the hash of that one."""
        self._read_upto = 0
        self._digest: SetDigest | None = None

    def roster_changed(self) -> None:
        """Compute the heads anew: others may be members now."""
        self._digest = None

    def digest(self) -> SetDigest:
        """Return the extent of the entries that are exchanged."""
        if self._digest is None:
            heads = self.chains.heads(self._is_told)
            self._digest = SetDigest(self.chains.count(self._is_told), digest(heads))
        return self._digest

    def heads(self) -> dict[str, list[str]]:
        """Return the ends of the chains that are exchanged."""
        return self.chains.heads(self._is_told)

    async def watch(self, woken: asyncio.Event) -> None:
        """Set `woken` at every new record."""
        await self._store.watch(woken)

    async def catch_up(self) -> None:
        """Read the records that this or another process has written; `writing` is held.

        Raises:
            HearthNetError: `partition` if the store does not answer.
        """
        async for batch in self._store.read(self._read_upto):
            self._read_upto = max([self._read_upto, *(number for number, _ in batch)])
            # Of writes that were repeated, a later one can be first.
            ordered = sorted(batch, key=lambda one: one[1].entry.sequence)
            for start in range(0, len(ordered), _SLICE):
                for number, record in ordered[start : start + _SLICE]:
                    self._place(number, record)
                await asyncio.sleep(0)

    def _place(self, number: int, record: ChainRecord) -> None:
        """Add a stored entry, and those that follow it and were stored before it.

        Entries are written side by side, so one can be stored before the one that it follows, or, where a
        process dies, without it; then it is not held, and comes again with that one.
        """
        ready = [(number, record)]
        while ready:
            number, record = ready.pop()
            entry = record.entry
            if not self.chains.is_next(entry):
                self._early.setdefault(entry.previous, []).append((number, record))
                continue
            self._numbers.setdefault(entry.hash, number)
            if not self.chains.holds(entry.hash):
                self.add(record)
            ready += self._early.pop(entry.hash, ())

    def add(self, record: ChainRecord) -> None:
        """Add an entry in memory."""
        self.chains.add(record.entry)
        self.published = max(self.published, record.place)
        if record.is_bare and len(self.bare) < _MOST_BARE:
            self.bare[record.entry.hash] = None
        self._digest = None

    async def claim(self, entry: LogEntry, place: int) -> bool:
        """Write an own entry, and return False if another process was first.

        Raises:
            HearthNetError: `partition` if the store does not answer; `capacity_exceeded` if the disk is full.
        """
        number = await self._store.claim(entry, place)
        if not number:
            return False
        # From now on it is counted in the heads, and has to be in the pages.
        self._numbers[entry.hash] = number
        self.add(ChainRecord(entry, place))
        return True

    async def keep(self, events: Sequence[LogEvent]) -> None:
        """Write events of other homes, which were added in memory, each text before its entry.

        Raises:
            HearthNetError: As `claim`.
        """
        if not events:
            return
        await self.keep_bodies([one for one in events if one.body])
        numbers = await self._store.keep_all([ChainRecord(one.entry, is_bare=not one.body) for one in events])
        self._numbers |= numbers
        if len(numbers) == len(events) and min(numbers.values()) == self._read_upto + 1:
            self._read_upto = max(numbers.values())  # nothing of others lies in between: it is not read again

    async def keep_bodies(self, events: Sequence[LogEvent]) -> None:
        """Write the bodies of events of other homes.

        Raises:
            HearthNetError: As `claim`.
        """
        if events:
            places = await self._events.keep(
                [KeptText(one.entry.author, one.entry.sequence, one.entry.hash, one.body) for one in events]
            )
            follows = places.start == self.kept.stop
            self.kept = range(self.kept.start, places.stop) if follows else places
        for one in events:
            self.bare.pop(one.entry.hash, None)

    def some_bare(self) -> list[str]:
        """Return the hashes of some entries without a body, others each time."""
        count = min(MOST_BODIES, len(self.bare))
        return random.sample(list(self.bare), count)

    async def bodies(self, hashes: Sequence[str]) -> list[LogEvent]:
        """Return those of these events whose bodies are here, as many as half a page holds.

        Raises:
            HearthNetError: `partition` if the store does not answer.
        """
        found = await self._events_of([one for one in hashes if one in self._numbers])
        sizes = accumulate(one.entry.size if one.body else 0 for one in found)
        return [one for one, size in zip(found, sizes, strict=True) if one.body and 2 * size <= PAGE_BYTES]

    async def page(
        self, heads: dict[str, list[str]], limit: int, after: str = ""
    ) -> tuple[list[LogEvent], int]:
        """Return what a node with `heads` lacks, by time, as much as a page holds; and how much is left.

        With `after` only of what is behind that place.

        Raises:
            HearthNetError: `bad_request` if `heads` or `after` is malformed; `partition` if the store does
                not answer.
        """
        behind = read_place(after) if after else None
        missing, total = self.chains.missing(heads, self._is_told, limit, behind)
        found, size = list[LogEvent](), 0
        for part in self._parts([one for one in missing if one in self._numbers]):
            for event in await self._events_of(part):
                size += event.entry.size if event.body else 0
                if found and size > PAGE_BYTES:
                    return found, total - len(found)
                found.append(event)
        return found, total - len(found)

    def _parts(self, hashes: Sequence[str]) -> Iterator[list[str]]:
        """Yield `hashes` in parts whose bodies are together hardly larger than a page, if none was erased."""
        part, size = list[str](), 0
        for hash_ in hashes:
            part.append(hash_)
            size += self.chains.size(hash_)
            if size > PAGE_BYTES:
                yield part
                part, size = [], 0
        if part:
            yield part

    async def _events_of(self, hashes: Sequence[str]) -> list[LogEvent]:
        records = await self._store.several([self._numbers[one] for one in hashes])
        texts = await self._events.texts(
            [(one.place, one.entry.author, one.entry.sequence, one.entry.hash) for one in records]
        )
        return [LogEvent(record.entry, text) for record, text in zip(records, texts, strict=True)]
