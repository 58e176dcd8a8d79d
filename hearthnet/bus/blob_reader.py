"""Reading a blob in parts, none of which is handed on before it is proved (docs/decisions/0080)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from hearthnet.bus.blob_entry import Entry, chunk_subject, index_subject, meta_subject, read_entry
from hearthnet.bus.blob_link import BlobLink
from hearthnet.bus.blob_writer import read_index
from hearthnet.errors import HearthNetError
from hearthnet.wire.blob import CHUNK_BYTES, Manifest, chunk_count, hash_of


class Damaged(HearthNetError):
    """Stored bytes are not those of their CID, or cannot be read from the disk any more."""


class Blob:
    """An open blob: `chunk`, `read` and `chunks` give bytes that were checked against its CID.

    They raise `internal_error` where what is stored is damaged, `not_found` where it was removed meanwhile.
    """

    def __init__(self, link: BlobLink, entry: Entry, manifest: Manifest, places: tuple[int, ...]) -> None:
        self._link = link
        self.entry = entry
        self.manifest = manifest
        self._places = places

    @property
    def cid(self) -> str:
        """What it is called."""
        return self.entry.name

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.entry.size

    async def chunk(self, index: int) -> bytes:
        """Chunk `index`, from 0."""
        if self.manifest.count == 1:
            data = await self._whole()
        else:
            kept = await self._link.at(self._places[index])
            if kept is None:
                raise await missing(self._link, self.entry)
            data = kept.data
        if not self.manifest.holds(index, data):
            raise damaged(self.cid)
        return data

    async def chunks(self, start: int = 0) -> AsyncIterator[bytes]:
        """The chunks from `start` on."""
        for index in range(start, self.manifest.count):
            yield await self.chunk(index)

    async def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`; fewer at the end."""
        end = min(offset + length, self.size)
        parts = []
        for index in range(offset // CHUNK_BYTES, -(-end // CHUNK_BYTES)):
            at = index * CHUNK_BYTES
            parts.append((await self.chunk(index))[max(offset - at, 0) : end - at])
        return b"".join(parts)

    async def _whole(self) -> bytes:
        """All messages of it: NATS's own clients cut into smaller pieces."""
        data = await _joined(self._link, self.entry)
        if not data:
            raise await missing(self._link, self.entry)
        return data


class OldBlob(Blob):
    """A blob of more than one chunk that is named by the hash of all its bytes: read as a whole, in memory.

    Such are what versions before this layout have put.
    """

    async def chunk(self, index: int) -> bytes:
        """A part of the whole, all of which was checked."""
        return await self.read(index * CHUNK_BYTES, CHUNK_BYTES)

    async def read(self, offset: int, length: int) -> bytes:
        """As `Blob.read`."""
        from hearthnet.canonical import content_hash

        data = await _joined(self._link, self.entry)
        if content_hash(data) != self.cid:
            raise damaged(self.cid)
        return data[offset : offset + length]


async def open_blob(link: BlobLink, entry: Entry) -> Blob:
    """The blob that `entry` describes; `internal_error` where its list of chunks is damaged."""
    try:
        hash_of(entry.name)
        if entry.size <= CHUNK_BYTES:
            manifest = Manifest(entry.size, hash_of(entry.name) if entry.size else b"")
            manifest.check(entry.name)
            return Blob(link, entry, manifest, ())
        kept = await link.last(index_subject(entry.nuid))
        if kept is None and (entry.options or {}).get("max_chunk_size") == CHUNK_BYTES:
            raise await missing(link, entry)
        if kept is None:
            return OldBlob(link, entry, Manifest(entry.size, b""), ())
        manifest, places = read_index(kept.data, entry.size)
        manifest.check(entry.name)
    except HearthNetError as error:
        if error.code != "bad_request":
            raise
        raise damaged(entry.name) from error
    if len(places) != manifest.count:
        raise damaged(entry.name)
    return Blob(link, entry, manifest, places)


async def damage(
    link: BlobLink, entry: Entry, told: Callable[[int], None] = lambda chunks: None
) -> tuple[int, ...]:
    """The numbers of the chunks of `entry` that cannot be read or are wrong; all where its list of them is.

    `told` takes how many were looked at. `not_found` where it was removed meanwhile.
    """
    count = max(1, chunk_count(entry.size))
    try:
        blob = await open_blob(link, entry)
        if isinstance(blob, OldBlob):
            await blob.read(0, 0)
            return ()
    except Damaged:
        return tuple(range(count))
    found = []
    for index in range(blob.manifest.count):
        try:
            await blob.chunk(index)
        except Damaged:
            found.append(index)
        told(index + 1)
    return tuple(found)


def damaged(cid: str) -> Damaged:
    """What is said of bytes that are not those of their CID."""
    return Damaged(
        "internal_error",
        f"the stored bytes of {cid[:23]}… are damaged; put them again with: hearthnet file put",
        details={"damaged": cid},
    )


async def missing(link: BlobLink, entry: Entry) -> HearthNetError:
    """What is said of a message that the store does not have: the server says the same of one that is damaged
    on the disk as of one that was taken away, and the entry tells them apart.
    """
    kept = await link.last(meta_subject(entry.name))
    now = None if kept is None else read_entry(kept.data)
    if now is not None and not now.deleted and now.nuid == entry.nuid:
        return damaged(entry.name)
    return HearthNetError("not_found", f"{entry.name[:23]}… was removed while it was read")


async def _joined(link: BlobLink, entry: Entry) -> bytes:
    """What lies under the entry's name, in order; at most what the entry says, and one message more."""
    data, after = bytearray(), 0
    while len(data) < entry.size and (kept := await link.after(after, chunk_subject(entry.nuid))):
        data += kept.data
        after = kept.sequence
    return bytes(data)
