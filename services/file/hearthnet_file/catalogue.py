"""Catalogue of all blobs, kept level with the store by reading its latest entries."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort

from hearthnet.bus import BlobRecord, Blobs
from hearthnet.protocol import is_cid


class Catalogue:
    """The bucket's entries in memory; call `look` before reading them."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._after = 0
        self._looking = asyncio.Lock()
        self._cids: list[str] = []
        self.entries: dict[str, BlobRecord] = {}
        """All blobs by CID."""
        self.gone: dict[str, tuple[BlobRecord, int]] = {}
        """Deleted blobs, with the stream sequence of the entry that marks the deletion."""
        self.others: set[str] = set()
        """Places of objects whose names are no CIDs; they belong to other programs and are left alone."""

    async def look(self) -> None:
        """Read the entries that changed since the last call."""
        async with self._looking:
            async for entry, place in self._blobs.entries(self._after):
                self._apply(entry, place)
                self._after = place

    def page(self, prefix: str, after: str, limit: int) -> list[BlobRecord]:
        """Return up to `limit` blobs in CID order that begin with `prefix` and follow `after`."""
        at = max(bisect_left(self._cids, prefix), bisect_right(self._cids, after))
        found = self._cids[at : at + limit]
        return [self.entries[cid] for cid in found if cid.startswith(prefix)]

    def places(self) -> set[str]:
        """Return the names under which the chunks of all objects are stored."""
        return {entry.nuid for entry in self.entries.values()} | self.others

    def _apply(self, entry: BlobRecord, place: int) -> None:
        cid = entry.name
        if not is_cid(cid):
            self.others.add(entry.nuid)
            return
        self.gone.pop(cid, None)
        if entry.deleted:
            self.gone[cid] = entry, place
            if self.entries.pop(cid, None) is not None:
                del self._cids[bisect_left(self._cids, cid)]
            return
        if cid not in self.entries:
            insort(self._cids, cid)
        self.entries[cid] = entry
