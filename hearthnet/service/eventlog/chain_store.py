"""The entries of one topic on the disk of this home, in the stream CHAINS.

    ch.<topic>.<community>.<author>.<sequence>          one entry per place, permanently; the first written
    ch.<topic>.<community>.<author>.<sequence>-<hash>   further ones of an author, several in one place

Chains of a community that this home has left stay, and are not read.

See: docs/protocol/log.md#store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from hearthnet.bus.store import Store
from hearthnet.core import ids
from hearthnet.core.canonical_json import read_json
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.service.effects import direct_reads, jetstream_records
from hearthnet.service.effects.jetstream_records import WrongSequence
from hearthnet.trust.eventlog.entries import LogEntry

_log = logging.getLogger(__name__)
STREAM: Final = "CHAINS"
_WHAT: Final = "the event log"
_APPEND_SECONDS: Final = 8.0


class ChainRecord(msgspec.Struct, frozen=True):
    """An entry as it is stored.

    `place` is that of the body in the topic's stream, if it was made here; `is_bare` says that it came
    without its body.
    """

    entry: LogEntry
    place: int = 0
    is_bare: bool = False


_RECORD: Final = msgspec.json.Decoder(ChainRecord)


class ChainStore:
    """The stored entries of one topic of `community`; `home` is checked for free space."""

    def __init__(self, store: Store, home: Home, topic: str, community: str) -> None:
        self._store = store
        self._prefix = f"ch.{topic}.{ids.token_form(community)}"
        self._room = jetstream_records.DiskGuard(home)

    async def claim(self, entry: LogEntry, place: int) -> int:
        """Store an entry of this node; return its number, 0 if another process has written one in its place.

        Raises:
            HearthNetError: `partition` if the store does not answer; `capacity_exceeded` if the disk is full.
        """
        return await self._append([(self._subject(entry), ChainRecord(entry, place))])

    async def keep(self, record: ChainRecord) -> None:
        """Store the entry of another node, or one of this node that another node had.

        Raises:
            HearthNetError: As `claim`.
        """
        entry = record.entry
        subject = self._subject(entry)
        if await self._append([(subject, record)]):
            return
        stored = await jetstream_records.last(
            self._store, STREAM, subject, _WHAT, jetstream_records.ANSWER_SECONDS
        )
        if stored is None or _hash_in(stored.data) != entry.hash:
            await self._append([(f"{subject}-{entry.hash[-16:]}", record)])

    async def keep_all(self, records: Sequence[ChainRecord]) -> dict[str, int]:
        """Store the entries of other nodes as `keep`, those together whose places are free.

        Return the numbers in the stream of those that were stored together, by their hashes.

        Raises:
            HearthNetError: As `claim`.
        """
        if len(records) > jetstream_records.MAX_BATCH:
            middle = jetstream_records.MAX_BATCH
        elif last := await self._append([(self._subject(one.entry), one) for one in records]):
            first = last - len(records) + 1
            return {one.entry.hash: number for number, one in enumerate(records, first)}
        elif len(records) == 1:
            await self.keep(records[0])
            return {}
        else:  # halved, so that one place that is taken costs a few appends more
            middle = len(records) // 2
        return await self.keep_all(records[:middle]) | await self.keep_all(records[middle:])

    async def several(self, numbers: Sequence[int]) -> list[ChainRecord]:
        """Return the records with these numbers in the stream.

        Raises:
            HearthNetError: `partition` if the store does not answer; `internal_error` if it has lost one.
        """
        found = await direct_reads.by_number(self._store, STREAM, numbers, _WHAT)
        if lost := [number for number in numbers if number not in found]:
            raise HearthNetError("internal_error", f"the event log has lost its entries {lost[:5]}")
        return [read_json(found[number].data, _RECORD) for number in numbers]

    async def read(self, after: int) -> AsyncIterator[list[tuple[int, ChainRecord]]]:
        """Yield the records behind number `after`, in the order in which they were written, in batches.

        Damaged ones are logged and skipped.

        Raises:
            HearthNetError: `partition` if the store does not answer.
        """
        async with jetstream_records.answering(_WHAT):
            upto = int((await self._store.js.stream_info(STREAM)).state.last_seq)
        subject = f"{self._prefix}.>"
        async for batch in direct_reads.read(self._store, STREAM, subject, after, upto, _WHAT):
            found = []
            for message in batch:
                if not message.subject.startswith(subject[:-1]):
                    continue
                try:
                    found.append((message.sequence, read_json(message.data, _RECORD)))
                except HearthNetError as error:
                    _log.error("%s in %s is damaged: %s", message.subject, _WHAT, error)
            yield found

    async def watch(self, woken: asyncio.Event) -> None:
        """Set `woken` at every new record, but those that this process keeps together."""
        await self._store.link.subscribe(f"{self._prefix}.>", woken.set)

    async def _append(self, records: Sequence[tuple[str, ChainRecord]]) -> int:
        """Append all of `records` under their subjects, and return the last number; 0 if one is taken."""
        await self._room.check()
        *ahead, (subject, data) = [(one, msgspec.json.encode(record)) for one, record in records]
        try:
            return await jetstream_records.write_until(
                self._store,
                STREAM,
                subject,
                data,
                expected={"Nats-Expected-Last-Subject-Sequence": "0"},
                until=asyncio.get_running_loop().time() + _APPEND_SECONDS,
                room=self._room,
                ahead=ahead,
                what=_WHAT,
            )
        except WrongSequence:
            return 0

    def _subject(self, entry: LogEntry) -> str:
        return f"{self._prefix}.{ids.token_form(entry.author)}.{entry.sequence}"


def _hash_in(data: bytes) -> str:
    """Return the hash of the entry in a stored record; empty where it is damaged, so that it comes anew."""
    try:
        return read_json(data, _RECORD).entry.hash
    except HearthNetError:
        return ""
