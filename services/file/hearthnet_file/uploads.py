"""Uploads: reception, verification and storage of content.

    the hashes of all chunks --> chunks left of an earlier attempt --> missing chunks --> visible

Every received chunk is checked against hashes that were checked against the CID. The chunks are stored under
a name made from the CID and the principal, so that its next put of the same content continues after the last
good one. No caller continues the upload of another, and content that a caller may not read is received like
content that is not here. So a put shows no caller whether others have stored it, and proves that its caller
has all of it.

See: docs/decisions/0080.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import aclosing
from typing import Any, Final

from hearthnet import Call, HearthNetError, Stream
from hearthnet.bus import BlobRecord, Blobs, BlobWriter, Hold
from hearthnet.core import content_hash, now_ms, unb64
from hearthnet.protocol import Manifest, hash_of
from hearthnet_file.schemas import ChunkSent, HashesSent, PutInput, sent

WINDOW: Final = 16
"""Chunks requested ahead; 4 MiB."""
_STEP: Final = WINDOW // 2
_PROGRESS_CHUNKS: Final = 64
_LOOK_EVERY: Final = 16
"""Chunks between two checks of the disk: a quarter of the space that has to stay free."""
_PROGRESS_SECONDS: Final = 1.0
_PLACE: Final = "put-"
CHECKING: Final = "checking what is there"
STORING: Final = "storing"
_Key = tuple[str, str]
"""A CID, and the principal that puts it."""
Room = Callable[[int], Awaitable[None]]
"""Makes room for a number of bytes, or raises `capacity_exceeded`."""


class Uploads:
    """The uploads of one process, one at a time for each CID and principal."""

    def __init__(self, blobs: Blobs, room: Room) -> None:
        self._blobs = blobs
        self._room = room
        self._running: dict[_Key, asyncio.Task[Any]] = {}
        self._turns: dict[_Key, asyncio.Lock] = {}
        self._taking: dict[_Key, tuple[int, BlobWriter]] = {}

    def is_taking(self, name: str) -> bool:
        """Return whether an upload to the place `name` is running."""
        return name.startswith(tuple(_place(cid) for cid, _ in self._turns))

    def is_place(self, name: str, lost: Collection[str]) -> bool:
        """Return whether `name` is an upload's place that belongs to none of the `lost` blobs."""
        return name.startswith(_PLACE) and not name.startswith(tuple(map(_place, lost)))

    async def receive(self, call: Call[Any, PutInput], stream: Stream, hold: Hold, *, trusted: bool) -> int:
        """Receive the missing chunks, add `hold`, and return the number of received chunks.

        A `trusted` caller is the home itself: it need not prove that it has content that is stored already.

        Raises:
            HearthNetError: `bad_request` if hashes or a chunk do not fit the CID; `capacity_exceeded` if
                there is no room.
        """
        key = call.input.manifest.cid, call.principal
        if (abandoned := self._running.get(key)) is not None:
            abandoned.cancel()
        turn = self._turns.setdefault(key, asyncio.Lock())
        task = asyncio.current_task()
        try:
            async with turn:
                if task is not None:
                    self._running[key] = task
                return await self._receive(call, stream, hold, trusted)
        finally:
            if self._running.get(key) is task:
                del self._running[key]
            if not turn.locked() and key not in self._running:
                self._turns.pop(key, None)

    async def _receive(self, call: Call[Any, PutInput], stream: Stream, hold: Hold, trusted: bool) -> int:
        cid, size = call.input.manifest.cid, call.input.manifest.size_bytes
        known = await self._blobs.find(cid)
        may_read = known is not None and (trusted or known.readable_by((call.principal,), now_ms()))
        damaged = ""
        if known is not None and may_read:
            if known.size == size and not await self._is_damaged(stream, known):
                if await self._blobs.hold(cid, hold):
                    return 0
            else:
                damaged = known.nuid
        manifest = await _manifest(call, stream)
        place = _place(cid) if trusted else f"{_place(cid)}-{_tag(call.principal)}"
        writer = await self._writer(stream, manifest, place, "" if known is None else known.nuid)
        resumed_at = writer.count
        key = cid, call.principal
        self._taking[key] = size, writer
        try:
            # All uploads together must fit.
            await self._room(sum(size - writer.size for size, writer in self._taking.values()))
            async with aclosing(_chunks(stream, manifest, writer.count)) as chunks:
                async for chunk in chunks:
                    if writer.count % _LOOK_EVERY == 0:
                        self._blobs.check_room(len(chunk))
                    await writer.append(chunk)
        finally:
            del self._taking[key]
        await self._blobs.commit(writer, hold, damaged)
        return manifest.count - resumed_at

    async def _writer(self, stream: Stream, manifest: Manifest, place: str, taken: str) -> BlobWriter:
        """Return a writer behind an earlier attempt's chunks in `place`, else in an empty place beside it.

        The place of the object `taken` and those before it are passed over.
        """
        number = _number(taken, place)
        while True:
            number += 1
            writer = BlobWriter(self._blobs.link, place + (f"-{number}" if number else ""))
            while await writer.check_next(manifest):
                if writer.count % _PROGRESS_CHUNKS == 0:
                    await stream.progress(CHECKING, writer.count, manifest.count)
            if await writer.is_alone():
                return writer

    async def _is_damaged(self, stream: Stream, known: BlobRecord) -> bool:
        """Return whether the stored blob cannot be read intact; reads all of it."""
        looked = 0

        def on_progress(chunks: int) -> None:
            nonlocal looked
            looked = chunks

        checking = asyncio.create_task(self._blobs.damage(known, on_progress))
        try:
            while not (await asyncio.wait({checking}, timeout=_PROGRESS_SECONDS))[0]:
                await stream.progress(CHECKING, looked, max(1, known.count))
            return bool(await checking)
        finally:
            checking.cancel()


def _number(name: str, place: str) -> int:
    """Return the number of `name` among `place`, `place-1` and so on, or -1."""
    found = re.fullmatch(rf"{re.escape(place)}(?:-(\d{{1,9}}))?", name)
    return -1 if found is None else int(found[1] or 0)


def _place(cid: str) -> str:
    return _PLACE + hash_of(cid).hex()


def _tag(principal: str) -> str:
    return "p" + content_hash(principal.encode())[-16:]


async def _manifest(call: Call[Any, PutInput], stream: Stream) -> Manifest:
    """Return the hashes of all chunks, requesting those that the input does not have."""
    declared = call.input.manifest
    count, hashes, page = Manifest(declared.size_bytes, b"").count, bytearray(), declared.chunks
    while True:
        at = len(hashes) // 32
        if [chunk.i for chunk in page] != list(range(at, at + len(page))):
            raise HearthNetError("bad_request", f"the hashes of chunks come in order; {at} is next")
        hashes += b"".join(hash_of(chunk.cid) for chunk in page)
        if len(hashes) // 32 >= count:
            break
        _check_streams(stream)
        await stream.send("ready", {"needed": [], "hashes_from": max(1, at + len(page))})
        page = sent(await stream.receive(), HashesSent).chunks
        if not page:
            raise HearthNetError("bad_request", "hashes of chunks were asked for, and none came")
    manifest = Manifest(declared.size_bytes, bytes(hashes))
    manifest.check(declared.cid)
    return manifest


async def _chunks(stream: Stream, manifest: Manifest, start: int) -> AsyncGenerator[bytes, None]:
    """Request the chunks from `start` on, a few ahead, and yield them in order."""
    requested = start
    for at in range(start, manifest.count):
        if requested - at <= WINDOW - _STEP and requested < manifest.count:
            _check_streams(stream)
            more = min(manifest.count, at + WINDOW)
            await stream.send("ready", {"needed": list(range(requested, more))})
            requested = more
        chunk = sent(await stream.receive(), ChunkSent)
        data = unb64(chunk.data_b64)
        if chunk.i != at or not manifest.holds(at, data):
            raise HearthNetError(
                "bad_request",
                f"chunk {at} of {manifest.cid[:23]}… was asked for, and something else came",
                details={"chunk": at, "sent": chunk.i},
            )
        yield data
        if (at + 1) % _PROGRESS_CHUNKS == 0:
            await stream.progress(STORING, at + 1, manifest.count)


def _check_streams(stream: Stream) -> None:
    if stream.unary:
        raise HearthNetError("bad_request", "chunks are put in a stream: open one, and send what it asks for")
