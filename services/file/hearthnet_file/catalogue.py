"""What blobs there are, kept up to the store from where it was last looked."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort

from hearthnet.bus.blob_entry import Entry
from hearthnet.bus.blobs import Blobs
from hearthnet.wire.blob import is_cid


class Catalogue:
    """The entries of the bucket, in memory; `look` before reading it."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._after = 0
        self._looking = asyncio.Lock()
        self._cids: list[str] = []
        self.entries: dict[str, Entry] = {}
        """Every blob by its CID."""
        self.gone: dict[str, tuple[Entry, int]] = {}
        """What was taken away, with the place of the entry that says so."""
        self.others: set[str] = set()
        """Where objects lie that are named by no CID: somebody else's, and let alone."""

    async def look(self) -> None:
        """Takes in what has changed."""
        async with self._looking:
            async for entry, place in self._blobs.entries(self._after):
                self._take(entry, place)
                self._after = place

    def page(self, prefix: str, after: str, limit: int) -> list[Entry]:
        """Up to `limit` blobs whose CID begins so, in order, behind `after`."""
        at = max(bisect_left(self._cids, prefix), bisect_right(self._cids, after))
        found = self._cids[at : at + limit]
        return [self.entries[cid] for cid in found if cid.startswith(prefix)]

    def places(self) -> set[str]:
        """The names under which the chunks of all objects lie."""
        return {entry.nuid for entry in self.entries.values()} | self.others

    def forget(self, cid: str) -> None:
        """That it was taken away is not kept in the store any more."""
        self.gone.pop(cid, None)

    def _take(self, entry: Entry, place: int) -> None:
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
