"""Reading of blobs in parts, each verified before it is returned (docs/decisions/0080)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from hearthnet.bus.blobs.metadata import BlobRecord, chunk_subject, index_subject, meta_subject, read_entry
from hearthnet.bus.blobs.stream import BlobLink
from hearthnet.bus.blobs.writer import read_index
from hearthnet.core.errors import HearthNetError, InternalError
from hearthnet.protocol.manifest import CHUNK_BYTES, Manifest, chunk_count, hash_of


class Damaged(InternalError):
    """Raised when stored bytes do not match their CID, or cannot be read from the disk."""

    def __init__(self, cid: str) -> None:
        super().__init__(
            f"the stored bytes of {cid[:23]}… are damaged; put them again with: hearthnet file put",
            details={"damaged": cid},
        )


class Blob:
    """An open blob: `chunk`, `read` and `chunks` return bytes that match its CID.

    Raises:
        HearthNetError: In these three, `internal_error` if the stored bytes are damaged; `not_found` if the
            blob was removed since.
    """

    def __init__(
        self, link: BlobLink, entry: BlobRecord, manifest: Manifest, places: tuple[int, ...]
    ) -> None:
        self._link = link
        self.entry = entry
        self.manifest = manifest
        self._places = places

    @property
    def cid(self) -> str:
        """The CID."""
        return self.entry.name

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.entry.size

    async def chunk(self, index: int) -> bytes:
        """Return chunk `index`, from 0."""
        if self.manifest.count == 1:
            data = await self._whole()
        else:
            stored = await self._link.at(self._places[index])
            if stored is None:
                raise await missing(self._link, self.entry)
            data = stored.data
        if not self.manifest.holds(index, data):
            raise Damaged(self.cid)
        return data

    async def chunks(self, start: int = 0) -> AsyncIterator[bytes]:
        """Yield the chunks from `start` on."""
        for index in range(start, self.manifest.count):
            yield await self.chunk(index)

    async def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`; fewer at the end."""
        end = min(offset + length, self.size)
        parts = []
        for index in range(offset // CHUNK_BYTES, -(-end // CHUNK_BYTES)):
            at = index * CHUNK_BYTES
            parts.append((await self.chunk(index))[max(offset - at, 0) : end - at])
        return b"".join(parts)

    async def _whole(self) -> bytes:
        """Return all messages of it, joined, since NATS's own clients cut into smaller pieces."""
        data = await _joined(self._link, self.entry)
        if not data:
            raise await missing(self._link, self.entry)
        return data


async def open_blob(link: BlobLink, entry: BlobRecord) -> Blob:
    """Open the blob that `entry` describes.

    Raises:
        HearthNetError: `internal_error` if its list of chunks is damaged.
    """
    try:
        hash_of(entry.name)
        if entry.size <= CHUNK_BYTES:
            manifest = Manifest(entry.size, hash_of(entry.name) if entry.size else b"")
            manifest.check(entry.name)
            return Blob(link, entry, manifest, ())
        stored = await link.last(index_subject(entry.nuid))
        if stored is None:
            raise await missing(link, entry)
        manifest, places = read_index(stored.data, entry.size)
        manifest.check(entry.name)
    except HearthNetError as error:
        if error.code != "bad_request":
            raise
        raise Damaged(entry.name) from error
    if len(places) != manifest.count:
        raise Damaged(entry.name)
    return Blob(link, entry, manifest, places)


async def damage(
    link: BlobLink, entry: BlobRecord, on_progress: Callable[[int], None] = lambda chunks: None
) -> tuple[int, ...]:
    """Return the numbers of the chunks of `entry` that are unreadable or wrong.

    All of them if the list of chunks is damaged. `on_progress` is called with the number of checked chunks.

    Raises:
        HearthNetError: `not_found` if the blob was removed since.
    """
    count = max(1, chunk_count(entry.size))
    try:
        blob = await open_blob(link, entry)
    except Damaged:
        return tuple(range(count))
    found = []
    for index in range(blob.manifest.count):
        try:
            await blob.chunk(index)
        except Damaged:
            found.append(index)
        on_progress(index + 1)
    return tuple(found)


async def missing(link: BlobLink, entry: BlobRecord) -> HearthNetError:
    """Return the error for a message that the store does not have.

    The server reports a message damaged on the disk like a deleted one; the entry tells them apart.
    """
    stored = await link.last(meta_subject(entry.name))
    now = None if stored is None else read_entry(stored.data)
    if now is not None and not now.deleted and now.nuid == entry.nuid:
        return Damaged(entry.name)
    return HearthNetError("not_found", f"{entry.name[:23]}… was removed while it was read")


async def _joined(link: BlobLink, entry: BlobRecord) -> bytes:
    """Return the messages of the chunks, in order, up to the entry's size plus one message."""
    data, after = bytearray(), 0
    while len(data) < entry.size and (stored := await link.after(after, chunk_subject(entry.nuid))):
        data += stored.data
        after = stored.sequence
    return bytes(data)
