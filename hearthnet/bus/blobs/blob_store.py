"""Blobs by their CID in the home's own object store: put, open, hold, release.

A blob exists when its entry does: the chunks are written first, then the list of their hashes and places,
then the entry in one write. Chunks left by a dead process before that belong to no blob, and are deleted
later (docs/decisions/0080).
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Iterable
from datetime import UTC, datetime
from typing import Final

from hearthnet.bus.blobs import metadata
from hearthnet.bus.blobs.metadata import (
    BlobRecord,
    Hold,
    Notes,
    cid_at,
    joined_holds,
    meta_subject,
    read_entry,
)
from hearthnet.bus.blobs.reader import Blob, damage, open_blob
from hearthnet.bus.blobs.stream import BlobLink, SequenceChanged
from hearthnet.bus.blobs.writer import Writer
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import ROOM_BYTES, Home
from hearthnet.core.ids import new_ulid
from hearthnet.core.times import now_ms
from hearthnet.protocol.manifest import CHUNK_BYTES, Cutter, is_cid, manifest_of

LOOK_EVERY: Final = 16
"""Number of chunks between two checks of the disk: a quarter of the space that has to stay free."""
Pieces = AsyncIterable[bytes] | Iterable[bytes]


class Blobs:
    """The bucket `blobs` of one home; `home`, if known, is checked for free space."""

    def __init__(self, link: BlobLink, home: Home | None = None) -> None:
        self.link = link
        self._home = home
        link.room = self.check_room

    async def put(self, pieces: Pieces, hold: Hold = Hold()) -> str:  # noqa: B008 - frozen
        """Store content that comes in pieces of any size, for `hold`; return its CID.

        Uses memory for a few chunks, whatever the size. Content that is stored already is stored once.

        Raises:
            HearthNetError: `capacity_exceeded` if the disk is full; `bad_request` over 4 GiB; `partition`
                without a store.
        """
        cutter, writer, count = Cutter(), Writer(self.link, new_ulid()), 0
        try:
            async for piece in _each(pieces):
                for chunk in cutter.feed(piece):
                    if count % LOOK_EVERY == 0:
                        self.check_room(CHUNK_BYTES)
                    count += 1
                    await writer.append(chunk)
            for chunk in cutter.end():
                self.check_room(len(chunk))
                await writer.append(chunk)
            return await self.commit(writer, hold)
        except BaseException:
            await writer.give_up()
            raise

    async def put_bytes(self, data: bytes, hold: Hold = Hold()) -> str:  # noqa: B008 - frozen
        """Store `data` as `put`; if it is stored already, undamaged, nothing is written again."""
        cid = manifest_of(data).cid
        known = await self.find(cid)
        whole = known is not None and not await damage(self.link, known)
        return cid if whole and await self.hold(cid, hold) else await self.put([data], hold)

    async def commit(self, writer: Writer, hold: Hold, damaged: str = "") -> str:
        """Make the written content visible, for `hold`, and return its CID.

        It replaces the same content if that is damaged, as the one with nuid `damaged` is known to be.
        """
        entry = await writer.entry()
        while True:
            known, sequence = await self._placed(entry.name)
            if known is None:
                fresh = entry.with_notes(Notes((hold,), now_ms()))
                if await self._replace(fresh, sequence):
                    return entry.name
            elif known.nuid != entry.nuid and await self._is_damaged(known, damaged):
                notes = Notes(joined_holds(known.notes.holds, hold), known.notes.made)
                # The damaged chunks stay: a server that purges part of a block may lose the messages behind
                # the damage, other content included (docs/decisions/0156).
                if await self._replace(entry.with_notes(notes), sequence):
                    return entry.name
            elif await self.hold(entry.name, hold):
                # Another writer was faster with the same content.
                if known.nuid != entry.nuid:
                    await writer.discard()
                return entry.name

    async def find(self, cid: str) -> BlobRecord | None:
        """Return the entry of `cid`, None if it is not stored here."""
        return (await self._placed(cid))[0]

    async def entry(self, cid: str) -> BlobRecord:
        """Return the entry of `cid`.

        Raises:
            HearthNetError: `not_found` if it is not stored here.
        """
        entry = await self.find(cid)
        if entry is None:
            raise no_blob(cid)
        return entry

    async def open(self, cid: str) -> Blob:
        """Open `cid` for reading in parts, each of which is verified.

        Raises:
            HearthNetError: `not_found` if it is not stored here; `internal_error` if its list of chunks is
                damaged.
        """
        return await open_blob(self.link, await self.entry(cid))

    async def read(self, cid: str) -> bytes:
        """Return the whole content, in memory.

        Raises:
            HearthNetError: As `open`, and `Blob.read`.
        """
        blob = await self.open(cid)
        return await blob.read(0, blob.size)

    async def hold(self, cid: str, hold: Hold) -> bool:
        """Keep stored content for `hold`, too; False if it is not stored here."""
        while True:
            entry, sequence = await self._placed(cid)
            if entry is None:
                return False
            notes = entry.notes
            holds = joined_holds(notes.holds, hold)
            if holds == notes.holds:
                return True
            if await self._replace(entry.with_notes(Notes(holds, notes.made)), sequence):
                return True

    async def release(self, cid: str, by: Collection[str]) -> bool:
        """End the holds of those in `by` on `cid`, and delete content without holds; return True if gone."""
        return await self._keep(cid, lambda hold: hold.by not in by)

    async def expire(self, cid: str, now_ms: int) -> bool:
        """End the holds on `cid` that expire by then, delete content without holds, as `release`."""
        return await self._keep(cid, lambda hold: hold.until == 0 or hold.until > now_ms)

    async def remove(self, cid: str) -> bool:
        """Delete `cid`, regardless of holds; False if it was not stored here."""
        while True:
            entry, sequence = await self._placed(cid)
            if entry is None:
                return False
            if await self._mark_deleted(entry, sequence):
                return True

    async def entries(self, after: int = 0) -> AsyncIterator[tuple[BlobRecord, int]]:
        """Yield the entries written, changed or `deleted` behind place `after`, with their places."""
        subject = f"{metadata.META}>"
        while (stored := await self.link.after(after, subject)) is not None:
            after = stored.sequence
            yield read_entry(stored.data), after

    async def lost(self, cid: str = "") -> list[str]:
        """Return the CIDs, of all or only `cid`, whose entries are damaged and unreadable."""
        subjects = await self.link.subjects(meta_subject(cid) if cid else f"{metadata.META}>")
        named = {subject: name for subject in subjects if is_cid(name := cid_at(subject))}
        if len(named) > 1:
            async for entry, _ in self.entries():
                named.pop(meta_subject(entry.name), None)
        return sorted([name for name in named.values() if await self.link.last(meta_subject(name)) is None])

    async def damage(self, entry: BlobRecord, on_progress: Callable[[int], None]) -> tuple[int, ...]:
        """Return the numbers of the damaged chunks; `on_progress` receives how many were read."""
        return await damage(self.link, entry, on_progress)

    async def places(self) -> set[str]:
        """Return the nuids of all stored chunks, those of unfinished uploads among them."""
        subjects = await self.link.subjects(f"{metadata.CHUNKS}>")
        return {subject.removeprefix(metadata.CHUNKS).partition(".")[0] for subject in subjects}

    async def written_ms(self, nuid: str) -> int:
        """Return when something was last written for `nuid`, in ms since 1970; 0 if there is nothing."""
        last = [await self.link.last(subject) for subject in metadata.data_subjects(nuid)]
        return max((stored.time_ms for stored in last if stored is not None), default=0)

    async def is_unreadable(self, nuid: str) -> bool:
        """Return whether the disk has lost messages of `nuid`, which the server still counts."""
        wanted = found = 0
        for subject in metadata.data_subjects(nuid):
            wanted += (await self.link.subjects(subject)).get(subject, 0)
            after = 0
            while (stored := await self.link.after(after, subject)) is not None:
                after, found = stored.sequence, found + 1
        return found < wanted

    async def clear(self, nuid: str) -> None:
        """Delete the chunks and the list of them."""
        for subject in metadata.data_subjects(nuid):
            await self.link.purge(subject)

    async def forget(self, cid: str, place: int) -> None:
        """Remove the record in `place` that `cid` was deleted, and earlier ones."""
        await self.link.purge(meta_subject(cid), before=place + 1)

    def check_room(self, size: int = 0, keep: int = ROOM_BYTES) -> None:
        """Check that after `size` more bytes `keep` bytes stay free, and never less than every home needs.

        Raises:
            HearthNetError: `capacity_exceeded` if they do not.
        """
        if self._home is None:
            return
        try:
            free = self._home.free_bytes()
        except OSError:
            return
        keep = max(keep, ROOM_BYTES)
        missing = size + keep - free
        if missing > 0:
            raise HearthNetError(
                "capacity_exceeded",
                "the disk has too little room for this content; "
                f"free {math.ceil(missing / 1_000_000)} MB, then try again",
                details={"free_bytes": free, "needed_bytes": size + keep},
            )

    async def check_quota(self, size: int, quota: int) -> None:
        """Check that `size` bytes more are within `quota`, both in bytes.

        Raises:
            HearthNetError: `capacity_exceeded` if they are not.
        """
        used = await self.link.used_bytes()
        if used + size > quota:
            more, most, here = (math.ceil(each / 1_000_000) for each in (size, quota, used))
            raise HearthNetError(
                "capacity_exceeded",
                f"{more} MB more are too much: this node keeps {most}, and has {here}; "
                "remove something, or raise quota_mb in [file] there",
                details={"used_bytes": used, "quota_bytes": quota, "needed_bytes": size},
            )

    async def _keep(self, cid: str, wanted: Callable[[Hold], bool]) -> bool:
        while True:
            entry, sequence = await self._placed(cid)
            if entry is None:
                return True
            holds, now = entry.notes.holds, now_ms()
            left = tuple(hold for hold in holds if wanted(hold))
            if not any(hold.until == 0 or hold.until > now for hold in left):
                if await self._mark_deleted(entry, sequence):
                    return True
            elif left == holds or await self._replace(
                entry.with_notes(Notes(left, entry.notes.made)), sequence
            ):
                return False

    async def _placed(self, cid: str) -> tuple[BlobRecord | None, int]:
        if not is_cid(cid):
            raise HearthNetError("bad_request", "a CID is blake3: and 64 hex characters")
        stored = await self.link.last(meta_subject(cid))
        if stored is None:
            return None, 0
        entry = read_entry(stored.data)
        return (None if entry.deleted else entry), stored.sequence

    async def _is_damaged(self, known: BlobRecord, damaged: str) -> bool:
        return known.nuid == damaged or bool(await damage(self.link, known))

    async def _replace(self, entry: BlobRecord, after: int) -> bool:
        """Write the entry if its predecessor is still in place `after`; return True if written."""
        try:
            await self.link.append(meta_subject(entry.name), entry.encode(), after, alone=True)
        except SequenceChanged:
            return False
        return True

    async def _mark_deleted(self, entry: BlobRecord, after: int) -> bool:
        deleted = BlobRecord(
            name=entry.name, nuid=entry.nuid, mtime=datetime.now(UTC).isoformat(), deleted=True
        )
        if not await self._replace(deleted, after):
            return False
        await self.clear(entry.nuid)
        return True


def no_blob(cid: str) -> HearthNetError:
    """Return the error for content that is not stored here."""
    return HearthNetError("not_found", f"this node keeps no blob {cid[:23]}…; store it first")


async def _each(pieces: Pieces) -> AsyncIterator[bytes]:
    if isinstance(pieces, AsyncIterable):
        async for piece in pieces:
            yield piece
    else:
        for piece in pieces:
            yield piece
