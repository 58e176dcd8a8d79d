"""The writer of a node's audit log: one chain in its store, shared by its processes.

Each entry is appended only behind the last one. A process that another one has overtaken reads the new end
and signs its entry again, so that the processes share one chain without coordination.

See: docs/protocol/audit.md#chain.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from hearthnet.bus.store import Store
from hearthnet.core.canonical_json import content_hash
from hearthnet.service.effects import direct_reads, jetstream_records
from hearthnet.service.effects.jetstream_records import (
    ANSWER_SECONDS,
    BEGUN_SHARE,
    DiskGuard,
    Message,
    WrongSequence,
)
from hearthnet.trust import audit_chain
from hearthnet.trust.audit_chain import AuditEntry, ChainPosition
from hearthnet.trust.keys import Identity

STREAM: Final = "AUDIT"
SUBJECT: Final = "au.entry"
_WHAT: Final = "the audit log"
_OWED: Final = frozenset({"ended", "decided", "removed"})
"""Kinds of entries about something that has begun, or that make room."""


class LogExtent(NamedTuple):
    """The part of the chain that is there; `first` is greater than `last` if there is none."""

    first: int
    last: int
    size_bytes: int


class AuditLog:
    """The chain of the node to which the store belongs."""

    def __init__(self, store: Store, identity: Identity, room: DiskGuard | None = None) -> None:
        """Use `store`; `room` is checked before each write, not for reading."""
        self._store = store
        self._identity = identity
        self._room = room or DiskGuard(None)
        self._place: ChainPosition | None = None
        self._turn = asyncio.Lock()
        self.known = 0
        """The number of an entry that was the last one; there may be more by now."""

    async def append(self, entry: AuditEntry, seconds: float, *, since: int | None = None) -> int:
        """Chain and sign `entry` behind the last one; return its number once it is on the disk.

        With `since`, the number of the entry that says the same of the call behind that place is returned
        instead, if there is one.

        Raises:
            HearthNetError: `capacity_exceeded` if the disk is full; `partition` if it is not known within
                `seconds` whether it was written.
        """
        async with self._turn:
            return await self._append(entry, asyncio.get_running_loop().time() + seconds, since)

    async def _append(self, entry: AuditEntry, until: float, since: int | None) -> int:
        from nats.js import api

        clock = asyncio.get_running_loop().time
        await self._room.check(BEGUN_SHARE if entry.kind in _OWED else 1.0)
        while True:
            place = self._place or await self.end(until - clock())
            if since is not None:
                if stands := await self._standing(entry, since, place.sequence):
                    return stands
                since = place.sequence
            line, after = audit_chain.write(entry, place, self._identity)
            self._place = place
            self.known = max(self.known, place.sequence)
            try:
                await jetstream_records.write_until(
                    self._store,
                    STREAM,
                    SUBJECT,
                    line,
                    expected={str(api.Header.EXPECTED_LAST_SEQUENCE.value): str(place.sequence)},
                    until=until,
                    room=self._room,
                    share=BEGUN_SHARE,
                    what=_WHAT,
                )
            except WrongSequence:
                # By another process, or by an attempt whose answer was lost.
                self._place = None
                there = await jetstream_records.at(self._store, STREAM, after.sequence, _WHAT)
                if there is None or there.data != line:
                    continue
            self._place = after
            return after.sequence

    async def _standing(self, entry: AuditEntry, since: int, upto: int) -> int:
        """Return the number of the entry in this part that says the same as `entry`; 0 for none."""
        async for batch in self.lines(since, upto):
            for message in batch:
                if _subject(audit_chain.read(message.data)) == _subject(entry):
                    return message.sequence
        return 0

    async def place(self, seconds: float = ANSWER_SECONDS) -> ChainPosition:
        """Return the end of the chain as known to this process; the first time from the store."""
        async with self._turn:
            self._place = self._place or await self.end(seconds)
            self.known = max(self.known, self._place.sequence)
            return self._place

    async def extent(self) -> LogExtent:
        """Return the numbers of the first and the last entry that are there, and their size."""
        async with jetstream_records.answering(_WHAT):
            state = (await self._store.js.stream_info(STREAM)).state
        return LogExtent(max(1, state.first_seq), state.last_seq, state.bytes)

    async def line(self, number: int) -> bytes | None:
        """Return the line of one entry; None if it is not there."""
        found = await jetstream_records.at(self._store, STREAM, number, _WHAT) if number > 0 else None
        return None if found is None else found.data

    async def lines(self, after: int, upto: int) -> AsyncIterator[list[Message]]:
        """Yield the lines of the entries after number `after`, up to `upto`, in batches."""
        async for batch in direct_reads.read(self._store, STREAM, SUBJECT, after, upto, _WHAT):
            yield batch

    async def end(self, seconds: float = ANSWER_SECONDS) -> ChainPosition:
        """Read the present end of the chain."""
        found = await jetstream_records.last(self._store, STREAM, SUBJECT, _WHAT, seconds)
        return ChainPosition() if found is None else ChainPosition(found.sequence, content_hash(found.data))


def _subject(entry: AuditEntry) -> tuple[str | int, ...]:
    """Return what no two entries of a chain share; callers choose the ids of their calls."""
    process = entry.instance if entry.kind == "began" else ""
    return entry.kind, entry.call, entry.caller, entry.began, process
