"""Content of any size to and from other nodes, chunk by chunk (docs/decisions/0080; docs/file.md).

Both ways go on by themselves where they broke off, for as long as they come on; what a node sends is checked
chunk by chunk, and one that sends anything else is not asked again.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from hearthnet import ids
from hearthnet.bus.bus import Bus
from hearthnet.bus.streamcall import StreamCall
from hearthnet.errors import HearthNetError
from hearthnet.wire.blob import LARGEST_BYTES, Manifest, hash_of

PUT: Final = "file.put@1.0"
READ: Final = "file.read@1.0"
_TRIES: Final = 3
"""So often in a row it is tried without a single chunk."""
PATIENCE_SECONDS: Final = 45.0
"""So long at least it is tried without a single chunk, where nobody else can be asked: a service that died is
back by then.
"""
_PAUSE_SECONDS: Final = 0.3
_LONGEST_PAUSE_SECONDS: Final = 3.0
_BROKEN: Final = frozenset({"partition", "timeout"})
_FIRST_HASHES: Final = 256
_MORE_HASHES: Final = 1024
Told = Callable[[int, int], None]
"""Takes how many chunks are there and how many there are, whenever that has changed."""


class Source(Protocol):
    """What is put: chunks in any order."""

    manifest: Manifest

    async def chunk(self, index: int) -> bytes:
        """Chunk `index`."""


class Sink(Protocol):
    """Where what is fetched goes."""

    async def begin(self, manifest: Manifest) -> int:
        """How many chunks it has from an earlier attempt."""

    async def write(self, index: int, data: bytes) -> None:
        """Takes the next chunk, which was checked."""


class Options(NamedTuple):
    """How content is kept: what it is called, for whom, for how long; and by which node, or any."""

    name: str = ""
    share: bool = False
    keep_seconds: int | None = None
    node: str = ""


class Done(NamedTuple):
    """What was put or fetched, by which node, and how many chunks travelled."""

    cid: str
    size: int
    node: str
    chunks: int


class WrongBytes(HearthNetError):
    """A node sent something else than it was asked for."""


async def put(bus: Bus, source: Source, options: Options, told: Told) -> Done:
    """Puts content on a node; what is there of it already is not sent again.

    Raises what the node raises, and `partition` or `timeout` where it broke off for 45 s without
    coming on.
    """
    sent, patience = _Sent(source, told), _Patience(PATIENCE_SECONDS, returns=True)
    while True:
        before = sent.furthest
        try:
            asked = bus.stream(PUT, _request(source.manifest, options), node=options.node)
            async with patience.opened(bus, asked) as stream:
                received = await sent.all(stream)
                manifest = source.manifest
                return Done(manifest.cid, manifest.size, stream.provider, received)
        except HearthNetError as error:
            await patience.bear(error, came_on=sent.furthest > before)


async def fetch(bus: Bus, cid: str, nodes: Sequence[str], sink: Sink, told: Told) -> Done:
    """Has the first of `nodes` that can send `cid`, from there on where an earlier one ended.

    Raises `not_found` where none of them has it, `WrongBytes` (internal_error) where the only ones that did
    sent something else, `partition` or `timeout` where it broke off again and again without coming on.
    """
    failed: HearthNetError = HearthNetError("not_found", f"nobody was asked for {cid[:23]}…")
    got = _Got(cid, sink, told)
    for node in nodes:
        try:
            await _from(bus, node, got, PATIENCE_SECONDS if node == nodes[-1] else 0)
            return Done(cid, got.known.size, node, got.travelled)
        except HearthNetError as error:
            if failed.code == "not_found" or isinstance(error, WrongBytes):
                failed = error
    raise failed


class _Patience:
    """Goes on after what broke off, until it did so several times in a row, and for a while, for nothing.

    With `returns`, whoever had begun and is offered by nobody any more is waited for as well.
    """

    def __init__(self, seconds: float, *, returns: bool = False) -> None:
        self._failures = 0
        self._returns = returns
        self._seconds = seconds
        self._since = asyncio.get_running_loop().time()

    @contextlib.asynccontextmanager
    async def opened(self, bus: Bus, asked: StreamCall) -> AsyncIterator[StreamCall]:
        """The stream, once it is open; `partition` where the server stays away for longer than there is
        patience left. For a place at who keeps files it is waited as for any call.
        """
        left = self._since + self._seconds - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(max(left, _LONGEST_PAUSE_SECONDS)):
                await bus.peer.link.connected()
        except TimeoutError:
            raise HearthNetError(
                "partition",
                "the server did not come back in time; see hearthnet status, and repeat the command: what is "
                "there already need not be sent again",
            ) from None
        async with asked as stream:
            yield stream

    async def bear(self, error: HearthNetError, *, came_on: bool) -> None:
        now = asyncio.get_running_loop().time()
        if came_on:
            self._failures, self._since = 0, now
        self._failures += 1
        worn_out = self._failures >= _TRIES and now - self._since >= self._seconds
        restarts = self._returns and self._failures > 1 and error.code == "not_found"
        if worn_out or not (restarts or error.code in _BROKEN):
            raise error
        await asyncio.sleep(min(_PAUSE_SECONDS * 2**self._failures, _LONGEST_PAUSE_SECONDS))


class _Sent:
    """Sends what the other end asks for."""

    def __init__(self, source: Source, told: Told) -> None:
        self._source = source
        self._told = told
        self.furthest = 0

    async def all(self, stream: StreamCall) -> int:
        """Until it is done; how many chunks were received."""
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
            text = base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
            await stream.send_input({"i": index, "cid": manifest.cids(index, index + 1)[0], "data_b64": text})
            self._reached(index)

    def _reached(self, chunks: int) -> None:
        if chunks > self.furthest:
            self.furthest = chunks
            self._told(chunks, self._source.manifest.count)


class _Got:
    """What has come so far."""

    def __init__(self, cid: str, sink: Sink, told: Told) -> None:
        self.cid = cid
        self.count = self.travelled = 0
        self._sink = sink
        self._told = told
        self._manifest: Manifest | None = None

    @property
    def known(self) -> Manifest:
        """What it consists of, once that is known."""
        return self._manifest or Manifest(0, b"")

    @property
    def begun(self) -> bool:
        """Whether it is known what it consists of."""
        return self._manifest is not None

    async def begin(self, manifest: Manifest) -> None:
        """What it consists of, which was checked."""
        self._manifest = manifest
        self.count = await self._sink.begin(manifest)
        self._told(self.count, manifest.count)

    async def take(self, data: bytes) -> None:
        """The next chunk, which was checked."""
        await self._sink.write(self.count, data)
        self.count += 1
        self.travelled += 1
        self._told(self.count, self.known.count)


async def _from(bus: Bus, node: str, got: _Got, patience_seconds: float) -> None:
    """All that lacks, from one node."""
    patience = _Patience(patience_seconds)
    while not got.begun or got.count < got.known.count:
        before = got.count
        try:
            if not got.begun:
                await got.begin(await _manifest(bus, node, got.cid, patience))
                continue
            body = {"params": {}, "input": {"cid": got.cid, "start": got.count}}
            async with patience.opened(bus, bus.stream(READ, body, node=node)) as stream:
                async for index, data in _chunks(stream):
                    if index != got.count or not got.known.holds(index, data):
                        raise _wrong(node, f"chunk {got.count} of {got.cid[:23]}… is not what it sent")
                    await got.take(data)
            if got.count < got.known.count:
                raise _wrong(node, f"it ended after {got.count} of {got.known.count} chunks")
        except HearthNetError as error:
            await patience.bear(error, came_on=got.count > before)


async def _manifest(bus: Bus, node: str, cid: str, patience: _Patience) -> Manifest:
    """What `cid` consists of, as `node` says and as is proved by the CID."""
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
    said = {
        "cid": manifest.cid,
        "size_bytes": manifest.size,
        "chunks": _hashes(manifest, 0, _FIRST_HASHES),
    }
    wanted: dict[str, Any] = {"manifest": said, "name": options.name, "share": options.share}
    if options.keep_seconds is not None:
        wanted["keep_seconds"] = options.keep_seconds
    return {"params": {}, "input": wanted}


def _hashes(manifest: Manifest, start: int, stop: int) -> list[dict[str, Any]]:
    return [{"i": start + at, "cid": cid} for at, cid in enumerate(manifest.cids(start, stop))]


def _wrong(node: str, what: str) -> WrongBytes:
    return WrongBytes("internal_error", f"{ids.short_id(node)} sent wrong bytes: {what}")
