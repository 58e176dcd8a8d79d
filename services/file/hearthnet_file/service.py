"""The file service: blobs by CID in the node's own object store.

See: docs/file.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Sequence
from typing import Any, ClassVar, Final

from hearthnet import (
    Call,
    HearthNetError,
    NodeContext,
    NotFound,
    Offer,
    Overloaded,
    Reply,
    Service,
    Stream,
    capability,
)
from hearthnet.bus import Blob, BlobRecord, DamagedBlob, Hold
from hearthnet.core import TaskSet, b64, least_ms, now_ms, rfc3339
from hearthnet.protocol import CHUNK_BYTES, LARGEST_BYTES
from hearthnet.trust import RANK
from hearthnet_file.catalogue import Catalogue
from hearthnet_file.garbage_collector import MB, Sweeper
from hearthnet_file.replicas import Holders
from hearthnet_file.schemas import AdvertiseInput, ListInput, PutInput, ReadInput, RemoveInput
from hearthnet_file.scrubber import LOST, PASS_MS, Scrubber

_log = logging.getLogger(__name__)
_PAGE: Final = 1024
_NO_ROOM: Final = "this node has no room for so much; its owner can make some"


class FileService(Service):
    """Content by its hash, put and read in chunks."""

    name: ClassVar[str] = "file"
    sweep_seconds: ClassVar[float] = 600.0
    scrub_ms: ClassVar[int] = PASS_MS

    def __init__(self) -> None:
        super().__init__()
        self._tasks = TaskSet()

    async def start(self, node: NodeContext) -> None:
        """Open the store; its content is examined later, beside the calls."""
        self._node = node
        self._blobs = await node.blobs()
        self._catalogue = Catalogue(self._blobs)
        self._sweeper = Sweeper(self._blobs, self._catalogue, node.config.file)
        self._holders = await asyncio.to_thread(Holders, node.data / "holders.db")
        self._scrubber = Scrubber(
            self._blobs, self._catalogue, node.data / "scrub.json", self.scrub_ms, self._update_note
        )
        self.note = self._scrubber.note

    async def opened(self) -> None:
        """Start to delete what earlier processes left behind, and to read blobs for damage."""
        self._tasks.start(self._sweep(), "sweep the blobs")
        self._tasks.start(self._scrubber.run(), "read the blobs for damage")

    def offers(self) -> list[Offer]:
        """Offer all five capabilities."""
        most = min(LARGEST_BYTES, max(1, self._node.config.file.quota_mb * MB))
        others = ("read", "list", "advertise", "remove")
        return [
            Offer(capability="file.put@1.0", params={"max_blob_bytes": most}),
            *(Offer(capability=f"file.{verb}@1.0") for verb in others),
        ]

    async def stop(self) -> None:
        """Stop the background work. A later put of the same content continues a partial upload."""
        await self._tasks.close()
        if hasattr(self, "_holders"):
            await asyncio.to_thread(self._holders.close)
        if hasattr(self, "_scrubber"):
            self._scrubber.close()

    @capability("file.put@1.0")
    async def put(self, call: Call[Any, PutInput], stream: Stream) -> Reply:
        """Store content; if it is stored already, add a hold of the caller."""
        wanted, own = call.input, self._node.is_self(call)
        level = self._node.bus.peer.roster.level(call.principal, now_ms())
        if not self._node.is_of_home(call) and RANK.get(level, 0) < RANK["trusted"]:
            raise HearthNetError("unauthorized", "other nodes take content of trusted members only")
        until = 0 if wanted.keep_seconds is None else now_ms() + wanted.keep_seconds * 1000
        hold = Hold(call.principal, wanted.name, until, wanted.share)
        try:
            received = await self._sweeper.uploads.receive(call, stream, hold, trusted=own)
        except Overloaded as error:
            if own or "used_bytes" not in error.details:
                raise
            # How much is kept would tell others whether their content was here already.
            raise HearthNetError(error.code, _NO_ROOM) from None
        if self._scrubber.state.damaged:
            await self._scrubber.settle()  # `hearthnet status` shows the repair at once
        output = {"cid": wanted.manifest.cid, "size_bytes": wanted.manifest.size_bytes}
        return Reply(output, {"received": received})

    @capability("file.read@1.0")
    async def read(self, call: Call[Any, ReadInput], stream: Stream) -> Reply:
        """Return a blob's manifest and its verified chunks; without a stream, one chunk."""
        try:
            return await self._read(call, stream)
        except DamagedBlob:
            entry = await self._blobs.find(call.input.cid)
            self._scrubber.record_damage(call.input.cid, LOST if entry is None else entry.nuid)
            raise

    async def _read(self, call: Call[Any, ReadInput], stream: Stream) -> Reply:
        blob = await self._readable(call, call.input.cid)
        start, count = call.input.start, blob.manifest.count
        if start >= max(1, count):
            raise HearthNetError(
                "bad_request", f"this blob has {count} chunks", details={"path": "/input/start"}
            )
        if stream.unary:
            return Reply(_chunk_output(blob, start, await blob.chunk(start) if count else b""))
        await _send_manifest(stream, blob)
        end = count if call.input.count is None else min(count, start + call.input.count)
        async with contextlib.aclosing(_ahead(blob, start, end)) as chunks:
            index = start
            async for data in chunks:
                await stream.send("chunk", {"i": index, **_chunk_output(blob, index, data)})
                index += 1
        return Reply(_chunk_output(blob, 0, b""), {"chunks": end - start})

    @capability("file.list@1.0")
    async def list_blobs(self, call: Call[Any, ListInput]) -> Reply:
        """Return the blobs that the caller may read, in the order of their CIDs."""
        await self._catalogue.look()
        wanted, own = call.input, self._node.is_self(call)
        shown: list[dict[str, Any]] = []
        mine = self._node.principals_of(call)
        after, more = wanted.after, True
        while more and len(shown) <= wanted.limit:
            page = self._catalogue.page(wanted.prefix, after, _PAGE)
            more = bool(page)
            after = page[-1].name if page else after
            known = ((entry, self._node.known_holds(call, entry)) for entry in page)
            shown += [_listed(entry, holds, mine, own) for entry, holds in known if holds]
        blobs = shown[: wanted.limit]
        more = len(shown) > wanted.limit
        return Reply({"cids": [blob["cid"] for blob in blobs], "blobs": blobs, "more": more})

    @capability("file.advertise@1.0")
    async def advertise(self, call: Call[Any, AdvertiseInput]) -> Reply:
        """Record the blobs that the caller's node keeps; failed reads of them name that node."""
        recorded = await asyncio.to_thread(self._holders.record, call.caller, call.input.cids, now_ms())
        return Reply({"recorded": recorded})

    @capability("file.remove@1.0")
    async def remove(self, call: Call[Any, RemoveInput]) -> Reply:
        """Release the caller's hold; a blob without holds is deleted."""
        cid, own = call.input.cid, self._node.is_self(call)
        if call.input.all and not own:
            raise HearthNetError(
                "unauthorized",
                "only the node itself removes what others hold",
                details={"path": "/input/all"},
            )
        entry = await self._blobs.find(cid)
        principals = self._node.principals_of(call)
        mine = entry is not None and any(hold.by in principals for hold in entry.notes.holds)
        if entry is None or not (mine or (own and call.input.all)):
            is_there = own and entry is not None and self._node.may_read(call, entry)
            hint = "; others do, and --all removes it for everybody" if is_there else " here"
            raise NotFound(f"you hold no blob {cid[:23]}…{hint}")
        if call.input.all:
            deleted = await self._blobs.remove(cid)
        else:
            deleted = await self._blobs.release(cid, principals)
        # To others it is gone, whoever else holds it.
        return Reply({"cid": cid, "deleted": deleted or not own})

    async def _readable(self, call: Call[Any, Any], cid: str) -> Blob:
        """Open a blob that the caller may read.

        Raises:
            HearthNetError: `not_found` if there is no such blob, and likewise if the caller may not read it.
        """
        entry, now = await self._blobs.find(cid), now_ms()
        if entry is not None and self._node.may_read(call, entry):
            return await self._blobs.open(cid)
        if entry is None and self._node.is_self(call) and await self._blobs.lost(cid):
            raise DamagedBlob(cid)
        holders = await asyncio.to_thread(self._holders.of, cid, now)
        raise NotFound(
            f"this node keeps no blob {cid[:23]}…; store it first",
            details={"alt_nodes": holders} if holders else None,
        )

    def _update_note(self) -> None:
        self.note = self._scrubber.note
        self.offers_changed()

    async def _sweep(self) -> None:
        while True:
            try:
                await self._sweeper.sweep(least_ms())
                for cid in self._sweeper.lost:
                    self._scrubber.record_damage(cid, LOST)
            except HearthNetError as error:
                _log.warning("not swept: %s", error)
            await asyncio.sleep(self.sweep_seconds)


def _chunk_output(blob: Blob, index: int, data: bytes) -> dict[str, Any]:
    cid = blob.manifest.cids(index, index + 1)[0] if blob.manifest.count else blob.cid
    return {"cid": cid, "size_bytes": len(data), "data_b64": b64(data)}


async def _send_manifest(stream: Stream, blob: Blob) -> None:
    """Send all hashes in pages; the first page is sent even if it is empty."""
    for start in range(0, max(1, blob.manifest.count), _PAGE):
        cids = blob.manifest.cids(start, start + _PAGE)
        await stream.send(
            "manifest",
            {
                "cid": blob.cid,
                "size_bytes": blob.size,
                "chunk_size_bytes": CHUNK_BYTES,
                "chunks": [{"i": start + at, "cid": cid} for at, cid in enumerate(cids)],
            },
        )


async def _ahead(blob: Blob, start: int, end: int) -> AsyncGenerator[bytes, None]:
    """Yield the chunks from `start` to before `end`; the next one is read while one is sent."""
    following: asyncio.Task[bytes] | None = None
    try:
        for index in range(start, end):
            data = await (following or asyncio.create_task(blob.chunk(index)))
            following = asyncio.create_task(blob.chunk(index + 1)) if index + 1 < end else None
            yield data
    finally:
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


def _listed(
    entry: BlobRecord, holds: Sequence[Hold], principals: frozenset[str], own: bool
) -> dict[str, Any]:
    """Return a blob as it is listed, with the `holds` of it that the caller may know."""
    mine = [hold for hold in holds if hold.by in principals]
    named = [hold.name for hold in (*mine, *holds) if hold.name]
    ends = 0 in (hold.until for hold in holds)
    made = entry.notes.made
    return {
        "cid": entry.name,
        "size_bytes": entry.size,
        "name": named[0] if named else "",
        "shared": any(hold.shared for hold in holds),
        "mine": bool(mine) or (own and any(hold.is_of_this_home for hold in holds)),
        "holders": len(holds) if own else len(mine),
        "stored_at": rfc3339(made) if made and own else None,
        "until": None if ends else rfc3339(max(hold.until for hold in holds)),
    }
