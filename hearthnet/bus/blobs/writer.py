"""Writing of blobs chunk by chunk, new or continued (docs/decisions/0080)."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import struct
from datetime import UTC, datetime
from typing import Final

from hearthnet.bus.blobs.metadata import BlobRecord, chunk_subject, index_subject
from hearthnet.bus.blobs.stream import BlobLink, SequenceChanged
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol.manifest import CHUNK_BYTES, HASH_BYTES, LARGEST_BYTES, Manifest, chunk_hash

_GIVE_UP_SECONDS: Final = 3.0
_PLACE: Final = struct.Struct(">Q")
LINE_BYTES: Final = HASH_BYTES + _PLACE.size


class Writer:
    """Chunks under one name, invisible until `entry` is written; one writer at a time.

    `nuid` names the place: a new one, or that of an upload to be continued.
    """

    def __init__(self, link: BlobLink, nuid: str) -> None:
        self.nuid = nuid
        self._link = link
        self._subject = chunk_subject(nuid)
        self._begin()

    def _begin(self) -> None:
        self._last = 0
        self._appended = 0
        self.size = 0
        """The number of bytes written."""
        self._hashes = bytearray()
        self._places = bytearray()
        self._sha = hashlib.sha256()

    @property
    def count(self) -> int:
        """The number of chunks written."""
        return len(self._hashes) // HASH_BYTES

    async def append(self, chunk: bytes) -> None:
        """Write a chunk, of 256 KiB unless it is the last one.

        Raises:
            HearthNetError: `bad_request` over the largest size; `capacity_exceeded` if another process writes
                there too, which is noticed at the first chunk or by `entry`.
        """
        if self.size + len(chunk) > LARGEST_BYTES:
            raise HearthNetError("bad_request", f"content has at most {LARGEST_BYTES} bytes")
        try:
            place = await self._link.append(self._subject, chunk, self._last, unchecked=self._appended > 0)
        except SequenceChanged as error:
            raise _two_writers() from error
        self._appended += 1
        self._add_chunk(chunk, place)

    async def check_next(self, manifest: Manifest) -> bool:
        """Accept the next chunk of an earlier upload; False if there is none.

        If it differs from `manifest`, all chunks are deleted, to begin again.
        """
        stored = await self._link.after(self._last, self._subject)
        if stored is None:
            return False
        if not manifest.holds(self.count, stored.data):
            await self.discard()
            return False
        self._add_chunk(stored.data, stored.sequence)
        return True

    async def entry(self) -> BlobRecord:
        """Write the list of chunks and return the entry, which is not visible yet.

        Raises:
            HearthNetError: `capacity_exceeded` if another process has written chunks between these.
        """
        manifest = Manifest(self.size, bytes(self._hashes))
        if self.count > 1:
            if not await self.is_alone():
                raise _two_writers()
            await self._write_index()
        return BlobRecord(
            name=manifest.cid,
            nuid=self.nuid,
            size=self.size,
            chunks=self.count,
            digest="SHA-256=" + base64.urlsafe_b64encode(self._sha.digest()).decode("ascii"),
            mtime=datetime.now(UTC).isoformat(),
            options={"max_chunk_size": CHUNK_BYTES},
        )

    async def discard(self) -> None:
        """Delete the written chunks."""
        await self._link.purge(self._subject)
        await self._link.purge(index_subject(self.nuid))
        self._begin()

    async def give_up(self) -> None:
        """Delete the written chunks, or leave them to a later cleanup if that takes long."""
        with contextlib.suppress(HearthNetError, TimeoutError):
            async with asyncio.timeout(_GIVE_UP_SECONDS):
                await self.discard()

    def _add_chunk(self, chunk: bytes, place: int) -> None:
        self._last = place
        self.size += len(chunk)
        self._hashes += chunk_hash(chunk)
        self._places += _PLACE.pack(place)
        self._sha.update(chunk)

    async def is_alone(self) -> bool:
        """Return whether the messages under its name are exactly the chunks of this writer.

        Others are from another process, or damaged on the disk; those cannot be deleted.
        """
        written = (await self._link.subjects(self._subject)).get(self._subject, 0)
        if written != self.count or not written:
            return written == self.count
        first = await self._link.after(0, self._subject)
        return first is not None and first.sequence == _PLACE.unpack_from(self._places)[0]

    async def _write_index(self) -> None:
        index = bytes(self._hashes + self._places)
        while True:
            before = await self._link.last(index_subject(self.nuid))
            try:
                await self._link.append(
                    index_subject(self.nuid), index, 0 if before is None else before.sequence, alone=True
                )
            except SequenceChanged:
                continue
            return


def _two_writers() -> HearthNetError:
    return HearthNetError(
        "capacity_exceeded", "the same content is being put by another process", retry_after_ms=1000
    )


def read_index(data: bytes, size: int) -> tuple[Manifest, tuple[int, ...]]:
    """Return the hashes and the places of the chunks."""
    count = len(data) // LINE_BYTES
    hashes, places = data[: count * HASH_BYTES], data[count * HASH_BYTES :]
    whole = places[: count * _PLACE.size]
    return Manifest(size, hashes), tuple(place for (place,) in _PLACE.iter_unpack(whole))
