"""Slow background reading of all stored blobs, which finds damage by the disk.

One chunk is read at a time, at a pace at which a pass over all chunks takes `pass_ms`. The position and the
damage found are kept in a file, so a restart continues the pass.

See: docs/decisions/0156.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from hearthnet import HearthNetError
from hearthnet.bus import Blob, BlobRecord, Blobs, DamagedBlob
from hearthnet.core import now_ms
from hearthnet_file.catalogue import Catalogue

_log = logging.getLogger(__name__)
PASS_MS: Final = 3 * 24 * 3_600_000
LEAST_PAUSE_MS: Final = 100
"""Shortest pause between two chunks: bounds the reading to 2.6 MB/s."""
_LOOK_MS: Final = 60_000
_SAVE_MS: Final = 10_000
LOST: Final = ""
"""Recorded as the place of a blob whose entry itself cannot be read."""


class ScrubState(msgspec.Struct):
    """Position and findings of the scrubber.

    `after` is the last blob read to its end; `cid` and `index` name the next chunk, due at `due` (ms since
    1970). `damaged` maps each damaged blob to its place.
    """

    after: str = ""
    cid: str = ""
    index: int = 0
    due: int = 0
    damaged: dict[str, str] = {}


class Scrubber:
    """The background reading of one service; `changed` is called when `note` changes."""

    def __init__(
        self, blobs: Blobs, catalogue: Catalogue, file: Path, pass_ms: int, changed: Callable[[], None]
    ) -> None:
        self._blobs = blobs
        self._catalogue = catalogue
        self._file = file
        self._pass_ms = pass_ms
        self._changed = changed
        self._open: Blob | None = None
        self._saved = 0
        self.state = _read(file)

    @property
    def note(self) -> str | None:
        """Message for the user about damaged blobs, or None."""
        count = len(self.state.damaged)
        if not count:
            return None
        files, what = ("1 file is", "it") if count == 1 else (f"{count} files are", "them")
        return f"{files} damaged on the disk; hearthnet file verify names {what}"

    async def run(self) -> None:
        """Read a chunk whenever one is due, until cancelled."""
        while True:
            wait = min(self.state.due - now_ms(), _LOOK_MS)
            if wait > 0:
                await asyncio.sleep(wait / 1000)
            try:
                await self.settle()
                if now_ms() >= self.state.due:
                    await self._next()
            except HearthNetError as error:
                _log.warning("what is kept is not read on now: %s", error)
                self.state.due = now_ms() + _LOOK_MS
            self._save(_SAVE_MS)

    async def settle(self) -> None:
        """Forget the damage of blobs that were removed or put again since."""
        await self._catalogue.look()
        entries = self._catalogue.entries
        mended = [
            cid
            for cid, place in self.state.damaged.items()
            if (cid in entries if place == LOST else cid not in entries or entries[cid].nuid != place)
        ]
        for cid in mended:
            del self.state.damaged[cid]
        if mended:
            self._save_state()

    def record_damage(self, cid: str, place: str) -> None:
        """Record that the content at `place` is damaged."""
        if self.state.damaged.get(cid) != place:
            _log.error("%s is damaged on the disk; put it again", cid)
            self.state.damaged[cid] = place
            self._save_state()

    def close(self) -> None:
        """Save the position."""
        self._save(0)

    async def _next(self) -> None:
        """Read the chunk that is due, and compute the time of the next one."""
        entry, state = self._entry(), self.state
        if entry is None:
            state.after, state.due = "", now_ms() + min(self._pass_ms, _LOOK_MS)
            return
        if entry.name != state.cid:
            state.cid, state.index = entry.name, 0
        try:
            await self._read_chunk(entry)
        except DamagedBlob:
            self.record_damage(entry.name, entry.nuid)
        except HearthNetError as error:
            if error.code != "not_found":  # removed since
                raise
        state.index += 1
        if state.index >= max(1, entry.count):
            state.after, state.cid, state.index, self._open = entry.name, "", 0, None
        total = sum(max(1, each.count) for each in self._catalogue.entries.values())
        state.due = now_ms() + max(LEAST_PAUSE_MS, self._pass_ms // max(1, total))

    async def _read_chunk(self, entry: BlobRecord) -> None:
        if self._open is None or self._open.entry.nuid != entry.nuid:
            self._open = None
            self._open = await self._blobs.open(entry.name)
        if entry.size:
            await self._open.chunk(self.state.index)

    def _entry(self) -> BlobRecord | None:
        """Return the blob that is being read, else the next one, or None at the end."""
        state = self.state
        if (entry := self._catalogue.entries.get(state.cid)) is not None:
            return entry
        return next(iter(self._catalogue.page("", state.after, 1)), None)

    def _save_state(self) -> None:
        self._save(0)
        self._changed()

    def _save(self, every_ms: int) -> None:
        if now_ms() - self._saved < every_ms:
            return
        self._saved = now_ms()
        beside = self._file.with_suffix(".new")
        with contextlib.suppress(OSError):  # a full disk: the state stays in memory and is written later
            beside.write_bytes(msgspec.json.encode(self.state))
            os.replace(beside, self._file)


def _read(file: Path) -> ScrubState:
    try:
        return msgspec.json.decode(file.read_bytes(), type=ScrubState)
    except (OSError, msgspec.DecodeError):
        return ScrubState()
