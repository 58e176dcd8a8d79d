"""The bucket of claims: a key is taken once, and changed only at its present revision.

See: docs/protocol/effects.md#claims.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

import blake3
import msgspec

from hearthnet.bus.store import CLAIMS, Store
from hearthnet.core.canonical_json import canonical_json, read_json
from hearthnet.service.effects import jetstream_records
from hearthnet.service.effects.jetstream_records import DiskGuard, Message, WrongSequence

_STREAM: Final = f"KV_{CLAIMS}"
_WHAT: Final = "the store of claims"
_RECORD: Final = msgspec.json.Decoder(dict[str, Any])


class Claim(NamedTuple):
    """The record of a key, and the revision by which to change it."""

    record: dict[str, Any]
    revision: int


def key(kind: str, *parts: str) -> str:
    """Return the key of one object of a kind; its external names become a hash of fixed form."""
    return f"{kind}.{blake3.blake3(canonical_json(list(parts))).hexdigest(16)}"


class ClaimStore:
    """The claims of the node to which the store belongs.

    Records are JSON objects, never equal for two callers: a lost answer is settled by reading.
    """

    def __init__(self, store: Store, room: DiskGuard) -> None:
        self._store = store
        self._room = room

    async def get(self, key: str, seconds: float) -> Claim | None:
        """Return the record of `key`, None if it was not taken.

        Raises:
            HearthNetError: `partition` without an answer.
        """
        found = await self._read(key, seconds)
        return None if found is None else Claim(read_json(found.data, _RECORD), found.sequence)

    async def write(
        self, key: str, record: dict[str, Any], revision: int, seconds: float, *, share: float = 1.0
    ) -> Claim | None:
        """Replace the record of `key` at `revision` (0: no record); None if it has changed since.

        Raises:
            HearthNetError: `capacity_exceeded` if the disk has less than `share` of the room that a write
                requires; `partition` if the result is unknown.
        """
        from nats.js import api

        await self._room.check(share)
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        data = msgspec.json.encode(record)
        expected = {str(api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value): str(revision)}
        try:
            place = await jetstream_records.write_until(
                self._store,
                _STREAM,
                _subject(key),
                data,
                expected=expected,
                until=until,
                room=self._room,
                share=share,
                what=_WHAT,
            )
        except WrongSequence as taken:
            # After a lost answer, the record found may be the one written here.
            now = await self._read(key, until - clock()) if taken.is_unsure else None
            return None if now is None or now.data != data else Claim(record, now.sequence)
        return Claim(record, place)

    async def _read(self, key: str, seconds: float) -> Message | None:
        return await jetstream_records.last(self._store, _STREAM, _subject(key), _WHAT, seconds)


def _subject(key: str) -> str:
    return f"$KV.{CLAIMS}.{key}"
