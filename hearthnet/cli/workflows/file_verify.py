"""`hearthnet file verify`: compares this node's content with its hashes (docs/file.md)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hearthnet.cli.output import terminal
from hearthnet.cli.output.text import counted, one_line, size
from hearthnet.cli.workflows.file_transfer import MIN_PREFIX, full_prefix, progress
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.protocol.manifest import chunk_count

if TYPE_CHECKING:
    from hearthnet.bus.blob_transfer import OnProgress
    from hearthnet.bus.blobs.metadata import BlobRecord
    from hearthnet.bus.store import HomeStore

_MAX_LISTED: Final = 8


class Bad(NamedTuple):
    """Damaged content.

    `chunks` are the numbers of its damaged chunks, from 0; empty if its list of chunks is lost.
    """

    cid: str
    name: str
    size: int
    chunks: tuple[int, ...]

    @property
    def chunks_in_all(self) -> int:
        """The number of its chunks."""
        return max(1, chunk_count(self.size))


class Verified(NamedTuple):
    """The number and size of the checked content, and the damaged parts."""

    checked: int
    size: int
    damaged: tuple[Bad, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the result for scripts."""
        damaged = [
            {"cid": bad.cid, "name": bad.name, "size_bytes": bad.size, "damaged_chunks": list(bad.chunks)}
            for bad in self.damaged
        ]
        return {"checked": self.checked, "size_bytes": self.size, "damaged": damaged}


async def verified(home: Home, prefixes: Sequence[str], *, quiet: bool) -> Verified:
    """Read the content whose hashes begin with one of `prefixes`, or all content.

    Raises:
        HearthNetError: `not_found` for a beginning without content; `bad_request` for one of several hashes.
    """
    from hearthnet.bus.store import HomeStore

    async with await HomeStore.connect(home, name="cli") as store:
        records: dict[str, BlobRecord] = {}
        async for entry, _ in store.blobs.entries():
            records.pop(entry.name, None)
            if not entry.deleted:
                records[entry.name] = entry
        lost = await store.blobs.lost()
        known = [*records, *lost]
        cids = sorted({_meant(text, known) for text in prefixes} if prefixes else known)
        bad = [Bad(cid, "", 0, ()) for cid in cids if cid in lost]
        bad += await _read(store, [records[cid] for cid in cids if cid in records], quiet)
    if bad:
        await _report_damage(home, bad)
    return Verified(len(cids), sum(records[cid].size for cid in cids if cid in records), tuple(bad))


def show(found: Verified) -> None:
    """Print the result for a person."""
    for bad in found.damaged:
        numbers = ", ".join(str(index + 1) for index in bad.chunks[:_MAX_LISTED])
        more = ", ..." if len(bad.chunks) > _MAX_LISTED else ""
        where = f"chunk {numbers}{more} of {bad.chunks_in_all}" if bad.chunks else "its entry"
        name = f" {one_line(bad.name)}" if bad.name else ""
        terminal.line(f"damaged  {bad.cid}{name}: {where}")
    what = f"{counted(found.checked, 'file')}, {size(found.size)}"
    if not found.damaged:
        terminal.line(f"{what}: all whole")
        return
    terminal.error(
        f"{len(found.damaged)} of {what} damaged on the disk; put the same content again with: "
        "hearthnet file put FILE"
    )


def _meant(text: str, known: Sequence[str]) -> str:
    """Return the one CID that begins with `text`."""
    prefix = full_prefix(text, min_length=MIN_PREFIX)
    found = [cid for cid in known if cid.startswith(prefix)]
    if len(found) > 1:
        shown = ", ".join(cid[:23] for cid in found[:4])
        raise HearthNetError("bad_request", f"{len(found)} hashes begin so: {shown}", alt=found[:16])
    if not found:
        raise HearthNetError("not_found", f"this node keeps no {prefix[:23]}; see: hearthnet file list")
    return found[0]


async def _read(store: HomeStore, entries: list[BlobRecord], quiet: bool) -> list[Bad]:
    from hearthnet.bus.blobs.reader import damage

    bad: list[Bad] = []
    total, before = sum(max(1, chunk_count(entry.size)) for entry in entries), 0
    with progress("verifying", counted(len(entries), "file"), None, quiet=quiet) as on_progress:
        for entry in entries:
            try:
                found = await damage(
                    store.blobs.link, entry, partial(_report_total, on_progress, before, total)
                )
            except HearthNetError as error:
                if error.code != "not_found":  # removed since it was listed
                    raise
                found = ()
            if found:
                name = next((hold.name for hold in entry.notes.holds if hold.name), "")
                bad.append(Bad(entry.name, name, entry.size, found))
            before += max(1, chunk_count(entry.size))
            on_progress(before, total)
    return bad


def _report_total(on_progress: OnProgress, before: int, total: int, chunks: int) -> None:
    on_progress(before + chunks, total)


async def _report_damage(home: Home, bad: Sequence[Bad]) -> None:
    """Make the service find the damage too, so that `hearthnet status` reports it at once."""
    from hearthnet.bus.bus import Bus

    with contextlib.suppress(HearthNetError):
        async with await Bus.connect(home, name="cli") as bus:
            for one in bad:
                start = one.chunks[0] if one.chunks else 0
                body = {"params": {}, "input": {"cid": one.cid, "start": start, "count": 1}}
                with contextlib.suppress(HearthNetError):
                    await bus.call("file.read@1.0", body, node=bus.peer.node_id)
