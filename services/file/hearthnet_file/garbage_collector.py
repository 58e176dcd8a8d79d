"""Deletion of obsolete content, and refusal of content that exceeds the quota.

    deleted                            when
    holds that have run out            always
    chunks of broken uploads           an hour after the last chunk arrived
    blobs with only temporary holds    the soonest end first, from 80 % of the quota on, down to 70 %
    records of deletions               a day later

A blob with a permanent hold is never deleted; the quota then refuses new content.

See: docs/decisions/0080.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Final

from hearthnet.bus import Blobs
from hearthnet.core import FileConfig, least_ms
from hearthnet_file.catalogue import Catalogue
from hearthnet_file.uploads import Uploads

_log = logging.getLogger(__name__)
MB: Final = 1_000_000
PARTIAL_MS: Final = 3_600_000
"""Retention of a broken upload (docs/file.md#how-much-and-for-how-long)."""
_DELETION_MS: Final = 24 * 3_600_000
_FULL, _EASED = 0.8, 0.7


class Sweeper:
    """Enforcement of the quota and of the disk's free space."""

    def __init__(self, blobs: Blobs, catalogue: Catalogue, settings: FileConfig) -> None:
        self._blobs = blobs
        self._catalogue = catalogue
        self._quota = settings.quota_mb * MB
        self._keep_free = settings.keep_free_mb * MB
        self.uploads: Uploads = Uploads(blobs, self.make_room)
        """The uploads that use the room made here."""
        self._damaged: set[str] = set()
        self.lost: list[str] = []
        """Blobs whose entries were damaged on the disk at the last sweep."""

    async def sweep(self, now: int, coming: int = 0) -> None:
        """Delete content that is obsolete at `now`, in ms since 1970.

        `coming` is the size in bytes of uploads under way.
        """
        await self._catalogue.look()
        for cid, entry in list(self._catalogue.entries.items()):
            if any(0 < hold.until <= now for hold in entry.notes.holds):
                await self._blobs.expire(cid, now)
        await self._relieve(coming)
        await self._clear_partials(now)
        await self._clear_deletions(now)
        await self._catalogue.look()

    async def make_room(self, size: int) -> None:
        """Make room for `size` bytes, or raise.

        Raises:
            HearthNetError: `capacity_exceeded` if the quota or the disk does not permit it.
        """
        self._blobs.check_room(size, self._keep_free)
        if await self._blobs.link.used_bytes() + size > self._quota * _FULL:
            await self.sweep(least_ms(), size)
        await self._blobs.check_quota(size, self._quota)

    async def _relieve(self, coming: int) -> None:
        """Delete blobs that have only temporary holds, until there is room again."""
        used = await self._blobs.link.used_bytes() + coming
        if used <= self._quota * _FULL:
            return
        await self._catalogue.look()
        passing = [
            (max(hold.until for hold in entry.notes.holds), cid, entry.size)
            for cid, entry in self._catalogue.entries.items()
            if all(hold.until for hold in entry.notes.holds)
        ]
        for until, cid, size in sorted(passing):
            if used <= self._quota * _EASED:
                return
            if await self._blobs.expire(cid, until):
                used -= size
                _log.info("%s went before its time: the quota was nearly used up", cid)

    async def _clear_partials(self, now: int) -> None:
        """Delete chunks that no entry names and to which nothing was added for an hour."""
        lying = await self._blobs.places()
        await self._catalogue.look()
        self.lost = await self._blobs.lost()
        for nuid in lying - self._catalogue.places():
            if self.uploads.is_taking(nuid):
                continue
            if self.lost and not self.uploads.is_place(nuid, self.lost):
                continue  # a damaged entry may name it, and the blob can be restored from it
            if now - await self._blobs.written_ms(nuid) > PARTIAL_MS and not await self._is_damaged(nuid):
                await self._blobs.clear(nuid)
                _log.info("what was left of the upload %s is cleared away", nuid)

    async def _is_damaged(self, nuid: str) -> bool:
        """Return whether the disk has damaged chunks of `nuid`; they are left as they are.

        See: docs/decisions/0156.
        """
        if nuid not in self._damaged and await self._blobs.is_unreadable(nuid):
            self._damaged.add(nuid)
        return nuid in self._damaged

    async def _clear_deletions(self, now: int) -> None:
        for cid, (entry, place) in list(self._catalogue.gone.items()):
            if now - _ms(entry.mtime) > _DELETION_MS:
                await self._blobs.clear(entry.nuid)  # the process that removed it may have died before
                await self._blobs.forget(cid, place)
                self._catalogue.gone.pop(cid, None)


def _ms(text: str) -> int:
    """Return a time written by a NATS client in ms since 1970, or 0 if it is malformed."""
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return 0
