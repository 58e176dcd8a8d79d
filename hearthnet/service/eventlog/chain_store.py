"""The entries of one topic on the disk of this home, in the stream CHAINS.

    ch.<topic>.<community>.<author>.<sequence>          one entry per place, permanently; the first written
    ch.<topic>.<community>.<author>.<sequence>-<hash>   further ones of an author, several in one place

Chains of a community that this home has left stay, and are not read.

See: docs/protocol/log.md#store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from hearthnet.bus.store import Store
from hearthnet.core import ids
from hearthnet.core.canonical_json import read_json
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.service.effects import jetstream_records
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

    async def claim(self, entry: LogEntry, place: int) -> bool:
        """Store an entry of this node; return False if another process has written one in its place.

        Raises:
            HearthNetError: `partition` if the store does not answer; `capacity_exceeded` if the disk is full.
        """
        return await self._append(self._subject(entry), ChainRecord(entry, place))

    async def keep(self, record: ChainRecord) -> None:
        """Store the entry of another node, or one of this node that another node had.

        Raises:
            HearthNetError: As `claim`.
        """
        entry = record.entry
        subject = self._subject(entry)
        if await self._append(subject, record):
            return
        stored = await jetstream_records.last(
            self._store, STREAM, subject, _WHAT, jetstream_records.ANSWER_SECONDS
        )
        if stored is None or _hash_in(stored.data) != entry.hash:
            await self._append(f"{subject}-{entry.hash[-16:]}", record)

    async def at(self, number: int) -> ChainRecord | None:
        """Return the record with that number in the stream.

        Raises:
            HearthNetError: `partition` if the store does not answer.
        """
        found = await jetstream_records.at(self._store, STREAM, number, _WHAT)
        return None if found is None else read_json(found.data, _RECORD)

    async def read(self, after: int) -> AsyncIterator[list[tuple[int, ChainRecord]]]:
        """Yield the records behind number `after`, in the order in which they were written, in batches.

        Damaged ones are logged and skipped.

        Raises:
            HearthNetError: `partition` if the store does not answer.
        """
        async with jetstream_records.answering(_WHAT):
            upto = int((await self._store.js.stream_info(STREAM)).state.last_seq)
        subject = f"{self._prefix}.>"
        async for batch in jetstream_records.read(self._store, STREAM, subject, after, upto, _WHAT):
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
        """Set `woken` at every new record."""
        await self._store.link.subscribe(f"{self._prefix}.>", woken.set)

    async def _append(self, subject: str, record: ChainRecord) -> bool:
        await self._room.check()
        try:
            await jetstream_records.write_until(
                self._store,
                STREAM,
                subject,
                msgspec.json.encode(record),
                expected={"Nats-Expected-Last-Subject-Sequence": "0"},
                until=asyncio.get_running_loop().time() + _APPEND_SECONDS,
                room=self._room,
                what=_WHAT,
            )
        except WrongSequence:
            return False
        return True

    def _subject(self, entry: LogEntry) -> str:
        return f"{self._prefix}.{ids.token_form(entry.author)}.{entry.sequence}"


def _hash_in(data: bytes) -> str:
    """Return the hash of the entry in a stored record; empty where it is damaged, so that it comes anew."""
    try:
        return read_json(data, _RECORD).entry.hash
    except HearthNetError:
        return ""
