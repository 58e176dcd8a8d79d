"""What many streams at once take of memory, at either end: both in fresh processes, watched from outside.

`python -m tests.bench.stream_memory FOLDER=URL` is the reading end: it says when it is ready, and reads as
many streams at once as each line of its standard input says.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, NamedTuple

from hearthnet.bus.bus import Bus
from hearthnet.core.home import Home
from tests.bench.bus_peers import CHAT, TALK_FRAMES
from tests.helpers.mesh import Mesh
from tests.helpers.processes import child_environment

ROOT: Final = Path(__file__).resolve().parents[2]
_WARM: Final = 20
_SECONDS: Final = 120


class Taken(NamedTuple):
    """Seconds for all streams; KB of each at its reader and its provider, at the worst moment."""

    seconds: float
    reader_kb: float
    provider_kb: float


async def measure(mesh: Mesh, streams: int) -> Taken:
    """`streams` at once, each of `TALK_FRAMES` frames."""
    async with (
        _process("tests.bench.bus_peers", "ours", f"{mesh.home.path}={mesh.server.url}") as provider,
        _process("tests.bench.stream_memory", f"{mesh.guest.path}={mesh.server.url}") as reader,
    ):
        await _read(reader, _WARM)
        before = [_rest(process.pid) for process in (reader, provider)]
        began = time.perf_counter()
        await _read(reader, streams)
        took = time.perf_counter() - began
        grown = [_peak_kb(process.pid) for process in (reader, provider)]
        kb = [(most - least) / streams for most, least in zip(grown, before, strict=True)]
    return Taken(took, *kb)


async def talk(bus: Bus) -> int:
    """Reads one stream; how many frames came."""
    body = {"params": {}, "input": {"messages": [{"role": "user", "content": str(TALK_FRAMES)}]}}
    count = 0
    async with bus.stream(CHAT, body, timeout_seconds=_SECONDS) as stream:
        async for _ in stream:
            count += 1
    if count != TALK_FRAMES + 1:
        raise RuntimeError(f"{count} frames of {TALK_FRAMES + 1}")
    return count


@contextlib.asynccontextmanager
async def _process(module: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", module, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=child_environment(PYTHONPATH=ROOT),
        cwd=ROOT,
    )
    try:
        await _word(process)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _read(reader: asyncio.subprocess.Process, streams: int) -> None:
    assert reader.stdin is not None
    reader.stdin.write(b"%d\n" % streams)
    await _word(reader)


async def _word(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    if not await asyncio.wait_for(process.stdout.readline(), _SECONDS):
        raise RuntimeError("a process of the benchmark ended")


def _rest(pid: int) -> int:
    """What the process has now, in KB; its peak is counted anew from here."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return _status_kb(pid, "VmRSS")


def _peak_kb(pid: int) -> int:
    return _status_kb(pid, "VmHWM")


def _status_kb(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


async def _main(address: str) -> None:
    folder, url = address.split("=", 1)
    loop = asyncio.get_running_loop()
    async with await Bus.join(Home.resolve(Path(folder)), url, "reader") as bus:
        _say()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            await asyncio.gather(*(talk(bus) for _ in range(int(line))))
            gc.collect()
            _say()


def _say() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
