"""An upload whose ends are killed: nothing half put is seen, and it goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hearthnet.bus import blob_transfer
from hearthnet.bus.blob_transfer import Options, TransferResult
from hearthnet.bus.bus import Bus
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol.manifest import CHUNK_BYTES, Manifest, manifest_of
from tests.helpers.mesh import Mesh
from tests.helpers.processes import child_environment
from tests.helpers.service_processes import START_SECONDS
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
CHUNKS = 40
DATA = os.urandom(CHUNKS * CHUNK_BYTES)
MANIFEST = manifest_of(DATA)
PUTTING = """
import asyncio, sys
from pathlib import Path
from hearthnet.bus import blob_transfer as content
from hearthnet.bus.bus import Bus
from hearthnet.bus.blob_transfer import Options
from hearthnet.core.home import Home
from hearthnet.protocol.manifest import CHUNK_BYTES, manifest_of

data = Path(sys.argv[3]).read_bytes()

class Source:
    manifest = manifest_of(data)

    async def chunk(self, index):
        if index == 20:
            sys.stdout.write("in the middle\\n")
            sys.stdout.flush()
            await asyncio.Event().wait()
        return data[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]

async def main():
    async with await Bus.join(Home.resolve(Path(sys.argv[1])), sys.argv[2], "putting") as bus:
        await content.put(bus, Source(), Options(), lambda chunks, of: None)

asyncio.run(main())
"""


class Source:
    """The chunks; `killed` is ended before chunk `at` is handed on, once."""

    manifest: Manifest = MANIFEST

    def __init__(self, killed: Process | None = None, at: int = 20) -> None:
        self.asked: list[int] = []
        self._killed = killed
        self._at = at

    async def chunk(self, index: int) -> bytes:
        self.asked.append(index)
        if index >= self._at and self._killed is not None:
            self._killed.kill()
            await self._killed.wait()
            self._killed = None
        return DATA[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]


async def put(bus: Bus, source: Source) -> TransferResult:
    return await blob_transfer.put(bus, source, Options(), lambda chunks, of: None)


@contextlib.asynccontextmanager
async def service(mesh: Mesh, bus: Bus) -> AsyncIterator[Process]:
    """The file service as a process of its own, which offers."""
    command = (sys.executable, "-m", "hearthnet.service.hosting.main", "file", "--home", str(mesh.home.path))
    process = await asyncio.create_subprocess_exec(
        *command, env=child_environment(), stderr=asyncio.subprocess.DEVNULL
    )

    async def offered() -> bool:
        return process.returncode is not None or bool(await bus.offers("file.put"))

    try:
        await wait_for(offered, START_SECONDS, "the file service")
        assert process.returncode is None
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await asyncio.wait_for(process.wait(), 30)


async def check_not_there(bus: Bus) -> None:
    """Nobody sees what was half put."""
    reply = await bus.call("file.list@1.0", {"params": {}, "input": {}}, timeout_seconds=30)
    assert reply.output["cids"] == []
    with pytest.raises(HearthNetError) as refused:
        await bus.call("file.read@1.0", {"params": {}, "input": {"cid": MANIFEST.cid}})
    assert refused.value.code == "not_found"


async def check_there(mesh: Mesh) -> None:
    """All of it, and nothing besides."""
    async with await mesh.store() as store:
        assert await store.blobs.read(MANIFEST.cid) == DATA
        chunks = await store.blobs.link.subjects("$O.blobs.C.>")
        assert sorted(chunks.values()) == [1, CHUNKS]  # the list of hashes, and the chunks


@pytest.mark.req("FILE-13", "POWER-1")
async def test_who_takes_is_killed_and_the_same_call_goes_on_with_the_next_process(mesh: Mesh) -> None:
    async with await mesh.bus() as bus, contextlib.AsyncExitStack() as stack:
        stack.enter_context(mesh.published())
        first = await stack.enter_async_context(service(mesh, bus))
        source = Source(killed=first)
        putting = asyncio.create_task(put(bus, source))
        await asyncio.wait_for(first.wait(), 60)
        await stack.enter_async_context(service(mesh, bus))
        done = await asyncio.wait_for(putting, 60)
        assert 0 < done.chunks < CHUNKS
        assert source.asked[:20] == list(range(20))
        assert source.asked[-done.chunks :] == list(range(CHUNKS - done.chunks, CHUNKS)), "not from the start"
        await check_there(mesh)


@pytest.mark.req("FILE-13", "POWER-1")
async def test_who_takes_is_killed_and_the_next_one_shows_nothing_of_it(mesh: Mesh) -> None:
    async with await mesh.bus() as bus, contextlib.AsyncExitStack() as stack:
        stack.enter_context(mesh.published())
        first = await stack.enter_async_context(service(mesh, bus))
        putting = asyncio.create_task(put(bus, Source(killed=first)))
        await asyncio.wait_for(first.wait(), 60)
        putting.cancel()
        await asyncio.gather(putting, return_exceptions=True)
        await stack.enter_async_context(service(mesh, bus))
        await check_not_there(bus)
        again = Source()
        done = await put(bus, again)
        assert again.asked == list(range(CHUNKS - done.chunks, CHUNKS))
        assert 0 < done.chunks < CHUNKS
        await check_there(mesh)


@pytest.mark.req("FILE-13", "POWER-1")
async def test_who_puts_is_killed_and_another_one_goes_on(mesh: Mesh, tmp_path: Path) -> None:
    file = tmp_path / "large.bin"
    file.write_bytes(DATA)
    async with await mesh.bus() as bus, contextlib.AsyncExitStack() as stack:
        stack.enter_context(mesh.published())
        await stack.enter_async_context(service(mesh, bus))
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PUTTING, str(mesh.home.path), mesh.server.url, str(file)),
            stdout=asyncio.subprocess.PIPE,
            env=child_environment(),
        )
        assert child.stdout is not None
        line = await asyncio.wait_for(child.stdout.readline(), 60)
        child.kill()
        await child.wait()
        assert line == b"in the middle\n"
        await check_not_there(bus)
        done = await put(bus, Source())
        assert 0 < done.chunks < CHUNKS
        await check_there(mesh)
