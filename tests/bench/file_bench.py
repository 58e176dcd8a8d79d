"""One gigabyte through the file service in chunks of 256 KiB: how fast, and in how much memory at both ends.

The service and the caller are processes of their own. What is put is made chunk by chunk and compared so,
too: nobody holds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from hearthnet.bus import blob_transfer
from hearthnet.bus.blob_transfer import Options
from hearthnet.bus.bus import Bus
from hearthnet.protocol.manifest import CHUNK_BYTES, Manifest, chunk_hash
from tests.bench.figures import Figure
from tests.helpers.mesh import Mesh, start_mesh
from tests.helpers.processes import child_environment
from tests.helpers.waiting import wait_for

BYTES: Final = 1 << 30
_GROWS_MB: Final = 64
_START_SECONDS: Final = 60


class Large:
    """Content that is made when it is asked for, and looked at when it comes back."""

    def __init__(self, size: int) -> None:
        self._base = os.urandom(CHUNK_BYTES - 8)
        count = size // CHUNK_BYTES
        hashes = b"".join(chunk_hash(self._chunk(index)) for index in range(count))
        self.manifest = Manifest(count * CHUNK_BYTES, hashes)
        self.came = 0

    def _chunk(self, index: int) -> bytes:
        return index.to_bytes(8, "big") + self._base

    async def chunk(self, index: int) -> bytes:
        """What is put."""
        return self._chunk(index)

    async def begin(self, manifest: Manifest) -> int:
        """Nothing is there yet of what is fetched."""
        return 0

    async def write(self, index: int, data: bytes) -> None:
        """What is fetched."""
        if index != self.came or data != self._chunk(index):
            raise SystemExit(f"chunk {index} is another one")
        self.came += 1


def figures() -> list[Figure]:
    """Rates of putting and reading, and what both took of memory meanwhile."""
    return measure(BYTES)


def measure(size: int) -> list[Figure]:
    """The same for `size` bytes."""
    with tempfile.TemporaryDirectory(prefix="hn-bench-") as folder:
        return asyncio.run(_measure(Path(folder), size))


async def _measure(folder: Path, size: int) -> list[Figure]:
    mesh = await start_mesh(folder / "mesh", stores=False)
    try:
        async with await mesh.bus("bench") as bus, _service(mesh, bus) as pid:
            large = Large(size)
            before, own_before = _most_mb(pid), _own_most_mb()
            began = time.perf_counter()
            done = await blob_transfer.put(bus, large, Options(), lambda chunks, of: None)
            put = time.perf_counter() - began
            await blob_transfer.fetch(bus, done.cid, [done.node], large, lambda chunks, of: None)
            read = time.perf_counter() - began - put
            grew, own_grew = _most_mb(pid) - before, _own_most_mb() - own_before
    finally:
        mesh.server.stop()
    if large.came != large.manifest.count:
        raise SystemExit(f"{large.came} chunks came of {large.manifest.count}")
    mb, goal = large.manifest.size / 1e6, f"< {_GROWS_MB}"
    what = f"{mb:.0f} MB in chunks of 256 KiB"
    return [
        Figure("file.put_mb_s", mb / put, "MB/s", "", f"{what} put on the own node over the bus"),
        Figure("file.read_mb_s", mb / read, "MB/s", "", f"{what} read from there, each checked"),
        Figure("file.service_grew", grew, "MB", goal, "most memory of the service above what it began with"),
        Figure("file.caller_grew", own_grew, "MB", goal, "the same of the caller"),
    ]


@contextlib.asynccontextmanager
async def _service(mesh: Mesh, bus: Bus) -> AsyncIterator[int]:
    """The file service as a process of its own; its process id."""
    with mesh.published():
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hearthnet.service.hosting.main", "file", "--home", str(mesh.home.path)),
            env=child_environment(),
            stderr=asyncio.subprocess.DEVNULL,
        )

        async def offered() -> bool:
            return bool(await bus.offers("file.put"))

        try:
            await wait_for(offered, _START_SECONDS, "the file service")
            yield process.pid
        finally:
            process.terminate()
            await process.wait()


def _most_mb(pid: int) -> float:
    """The most memory that a process has had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return float(line.split()[1]) / 1024
    raise SystemExit(f"process {pid} says nothing of its memory")


def _own_most_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
