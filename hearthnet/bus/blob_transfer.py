"""Content of any size to and from other nodes, in chunks.

Both directions resume automatically while they make progress. Every received chunk is verified, and a node
that sends anything else is not called again.

See: docs/file.md, docs/decisions/0080.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from hearthnet.bus.bus import Bus
from hearthnet.bus.calls.streaming import StreamCall
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError, InternalError, Unavailable
from hearthnet.protocol.manifest import LARGEST_BYTES, Manifest, hash_of

PUT: Final = "file.put@1.0"
READ: Final = "file.read@1.0"
_TRIES: Final = 3
"""Minimum of attempts in a row without a new chunk before giving up."""
PATIENCE_SECONDS: Final = 45.0
"""Minimum time without a new chunk before giving up on the last node; a service that died is restarted by
then.
"""
_PAUSE_SECONDS: Final = 0.3
_LONGEST_PAUSE_SECONDS: Final = 3.0
_BROKEN: Final = frozenset({"partition", "timeout"})
_FIRST_HASHES: Final = 256
_MORE_HASHES: Final = 1024
OnProgress = Callable[[int, int], None]
"""Called with the number of chunks transferred and in total, after each change."""


class ChunkSource(Protocol):
    """The content to put, as chunks in any order."""

    manifest: Manifest

    async def chunk(self, index: int) -> bytes:
        """Return chunk `index`."""


class ChunkSink(Protocol):
    """The destination of fetched content."""

    async def begin(self, manifest: Manifest) -> int:
        """Return the number of chunks stored by an earlier attempt."""

    async def write(self, index: int, data: bytes) -> None:
        """Store the next chunk, which was verified."""


class Options(NamedTuple):
    """The name of the content, sharing, retention in seconds, and the node, empty for any."""

    name: str = ""
    share: bool = False
    keep_seconds: int | None = None
    node: str = ""


class TransferResult(NamedTuple):
    """The transferred content, the other node, and the number of chunks sent or received."""

    cid: str
    size: int
    node: str
    chunks: int


class CorruptChunk(InternalError):
    """Raised when a node sent other content than requested."""


async def put(bus: Bus, source: ChunkSource, options: Options, on_progress: OnProgress) -> TransferResult:
    """Put content on a node; chunks that it has already are not sent again.

    Raises:
        HearthNetError: The node's error; `partition` or `timeout` after 45 s of failures without a new chunk.
    """
    transmission, patience = _Transmission(source, on_progress), _Patience(PATIENCE_SECONDS, returns=True)
    while True:
        before = transmission.furthest
        try:
            asked = bus.stream(PUT, _request(source.manifest, options), node=options.node)
            async with patience.opened(bus, asked) as stream:
                received = await transmission.all(stream)
                manifest = source.manifest
                return TransferResult(manifest.cid, manifest.size, stream.provider, received)
        except HearthNetError as error:
            await patience.bear(error, progressed=transmission.furthest > before)


async def fetch(
    bus: Bus, cid: str, nodes: Sequence[str], sink: ChunkSink, on_progress: OnProgress
) -> TransferResult:
    """Fetch `cid` from the first of `nodes` that can send it, resuming after a failed one.

    Raises:
        HearthNetError: `not_found` if none of them has it; `partition` or `timeout` after repeated failures
            without a new chunk.
        WrongBytes: The only nodes that have it sent other content (`internal_error`).
    """
    failed: HearthNetError = HearthNetError("not_found", f"nobody was asked for {cid[:23]}…")
    reception = _Reception(cid, sink, on_progress)
    for node in nodes:
        try:
            await _from(bus, node, reception, PATIENCE_SECONDS if node == nodes[-1] else 0)
            return TransferResult(cid, reception.known.size, node, reception.received)
        except HearthNetError as error:
            if failed.code == "not_found" or isinstance(error, CorruptChunk):
                failed = error
    raise failed


class _Patience:
    """A limit on failures without progress: several in a row, and a minimum time.

    With `returns`, a provider that had begun and is no longer offered is waited for as well.
    """

    def __init__(self, seconds: float, *, returns: bool = False) -> None:
        self._failures = 0
        self._returns = returns
        self._seconds = seconds
        self._since = asyncio.get_running_loop().time()

    @contextlib.asynccontextmanager
    async def opened(self, bus: Bus, asked: StreamCall) -> AsyncIterator[StreamCall]:
        """Open the stream, once the server is connected; wait for a busy provider as in a call.

        Raises:
            HearthNetError: `partition` if the server stays away for the remaining time.
        """
        left = self._since + self._seconds - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(max(left, _LONGEST_PAUSE_SECONDS)):
                await bus.peer.link.connected()
        except TimeoutError:
            raise Unavailable(
                "the server did not come back in time; see hearthnet status, and repeat the command: what is "
                "there already need not be sent again",
                rule="connection_lost",
            ) from None
        async with asked as stream:
            yield stream

    async def bear(self, error: HearthNetError, *, progressed: bool) -> None:
        now = asyncio.get_running_loop().time()
        if progressed:
            self._failures, self._since = 0, now
        self._failures += 1
        is_exhausted = self._failures >= _TRIES and now - self._since >= self._seconds
        restarts = self._returns and self._failures > 1 and error.code == "not_found"
        if is_exhausted or not (restarts or error.code in _BROKEN):
            raise error
        await asyncio.sleep(min(_PAUSE_SECONDS * 2**self._failures, _LONGEST_PAUSE_SECONDS))


class _Transmission:
    """The sender of requested chunks."""

    def __init__(self, source: ChunkSource, on_progress: OnProgress) -> None:
        self._source = source
        self._on_progress = on_progress
        self.furthest = 0

    async def all(self, stream: StreamCall) -> int:
        """Serve the stream until it ends; return the number of chunks received."""
        manifest, received = self._source.manifest, 0
        async for frame in stream:
            if frame.event == "progress":
                self._reached(int(frame.data["current"]))
            elif frame.event == "ready":
                await self._send(stream, frame.data)
            elif frame.event == "done":
                received = int(frame.data["received"])
        self._reached(manifest.count)
        return received

    async def _send(self, stream: StreamCall, asked: dict[str, Any]) -> None:
        manifest = self._source.manifest
        if (start := asked.get("hashes_from")) is not None:
            await stream.send_input({"chunks": _hashes(manifest, start, start + _MORE_HASHES)})
        for index in asked["needed"]:
            if index >= manifest.count:
                raise HearthNetError(
                    "internal_error", f"{ids.short_id(stream.provider)} asks for what is not"
                )
            data = await self._source.chunk(index)
            text = ids.b64(data)
            await stream.send_input({"i": index, "cid": manifest.cids(index, index + 1)[0], "data_b64": text})
            self._reached(index)

    def _reached(self, chunks: int) -> None:
        if chunks > self.furthest:
            self.furthest = chunks
            self._on_progress(chunks, self._source.manifest.count)


class _Reception:
    """The chunks received so far."""

    def __init__(self, cid: str, sink: ChunkSink, on_progress: OnProgress) -> None:
        self.cid = cid
        self.count = self.received = 0
        self._sink = sink
        self._on_progress = on_progress
        self._manifest: Manifest | None = None

    @property
    def known(self) -> Manifest:
        """The manifest; an empty one while it is unknown."""
        return self._manifest or Manifest(0, b"")

    @property
    def begun(self) -> bool:
        """True once the manifest is known."""
        return self._manifest is not None

    async def begin(self, manifest: Manifest) -> None:
        """Start with the verified manifest."""
        self._manifest = manifest
        self.count = await self._sink.begin(manifest)
        self._on_progress(self.count, manifest.count)

    async def take(self, data: bytes) -> None:
        """Store the next verified chunk."""
        await self._sink.write(self.count, data)
        self.count += 1
        self.received += 1
        self._on_progress(self.count, self.known.count)


async def _from(bus: Bus, node: str, reception: _Reception, patience_seconds: float) -> None:
    """Fetch all missing chunks from one node."""
    patience = _Patience(patience_seconds)
    while not reception.begun or reception.count < reception.known.count:
        before = reception.count
        try:
            if not reception.begun:
                await reception.begin(await _manifest(bus, node, reception.cid, patience))
                continue
            body = {"params": {}, "input": {"cid": reception.cid, "start": reception.count}}
            async with patience.opened(bus, bus.stream(READ, body, node=node)) as stream:
                async for index, data in _chunks(stream):
                    if index != reception.count or not reception.known.holds(index, data):
                        raise _wrong(
                            node, f"chunk {reception.count} of {reception.cid[:23]}… is not what it sent"
                        )
                    await reception.take(data)
            if reception.count < reception.known.count:
                raise _wrong(node, f"it ended after {reception.count} of {reception.known.count} chunks")
        except HearthNetError as error:
            await patience.bear(error, progressed=reception.count > before)


async def _manifest(bus: Bus, node: str, cid: str, patience: _Patience) -> Manifest:
    """Return the manifest of `cid` from `node`, verified by the CID."""
    hashes = bytearray()
    asked = bus.stream(READ, {"params": {}, "input": {"cid": cid, "count": 1}}, node=node)
    async with patience.opened(bus, asked) as stream:
        async for frame in stream:
            if frame.event != "manifest":
                continue
            manifest = Manifest(frame.data["size_bytes"], b"")
            try:
                for chunk in frame.data["chunks"]:
                    hashes += hash_of(chunk["cid"])
                if len(hashes) < manifest.count * 32 and manifest.size <= LARGEST_BYTES:
                    continue
                manifest = Manifest(manifest.size, bytes(hashes))
                manifest.check(cid)
            except HearthNetError as error:
                raise _wrong(node, error.message) from error
            return manifest
    raise _wrong(node, f"it did not say what {cid[:23]}… consists of")


async def _chunks(stream: StreamCall) -> AsyncIterator[tuple[int, bytes]]:
    async for frame in stream:
        if frame.event == "chunk":
            text = str(frame.data["data_b64"])
            try:
                data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            except (binascii.Error, ValueError):
                data = b""
            yield frame.data["i"], data


def _request(manifest: Manifest, options: Options) -> dict[str, Any]:
    manifest_fields = {
        "cid": manifest.cid,
        "size_bytes": manifest.size,
        "chunks": _hashes(manifest, 0, _FIRST_HASHES),
    }
    wanted: dict[str, Any] = {"manifest": manifest_fields, "name": options.name, "share": options.share}
    if options.keep_seconds is not None:
        wanted["keep_seconds"] = options.keep_seconds
    return {"params": {}, "input": wanted}


def _hashes(manifest: Manifest, start: int, stop: int) -> list[dict[str, Any]]:
    return [{"i": start + at, "cid": cid} for at, cid in enumerate(manifest.cids(start, stop))]


def _wrong(node: str, what: str) -> CorruptChunk:
    return CorruptChunk(f"{ids.short_id(node)} sent wrong bytes: {what}")
