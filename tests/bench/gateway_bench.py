"""Frames over the gateway's WebSocket beside a plain `websockets` server that sends the same ones.

The plain server has its frames in its memory. The gateway's come over the bus from a provider in a process of
its own, boxed, checked and acknowledged at both ends. Readers are the same, and acknowledge to both.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import psutil
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from hearthnet.gateway.socket.frames import SUBPROTOCOL
from hearthnet.gateway.socket.protocol import ACK_EVERY
from tests.bench.bus_bench import UNLIMITED
from tests.bench.bus_peers import TALK_FRAMES
from tests.bench.figures import Figure
from tests.bench.rivals import answering
from tests.helpers.mesh import start_mesh
from tests.helpers.processes import child_environment

ROOT: Final = Path(__file__).resolve().parents[2]
READERS: Final = 500
FIRST: Final = 50
IDLE: Final = 1_000
IDLE_SECONDS: Final = 60
_ROUNDS: Final = 5
_SETTINGS: Final = UNLIMITED + "\n[gateway]\nport = 0\n"


class Server(NamedTuple):
    """A server under measurement: where it is, and who may ask there."""

    url: str
    keys: list[str]
    pid: int

    @property
    def memory_kb(self) -> float:
        """What it has to itself."""
        return float(psutil.Process(self.pid).memory_full_info().uss) / 1024


def figures() -> list[Figure]:
    """Frames a second at 500 readers, the first frame at 50, memory of idle ones."""
    with tempfile.TemporaryDirectory(prefix="hn-bench-") as folder:
        return asyncio.run(_measure(Path(folder)))


async def _measure(folder: Path) -> list[Figure]:
    mesh = await start_mesh(folder / "mesh", stores=False)
    mesh.home.config_file.write_text(_SETTINGS)
    place = f"{mesh.home.path}={mesh.server.url}"
    try:
        async with answering("ours", place), _server("gateway", place) as ours, _server("plain") as plain:
            return [*await _frames(ours, plain), *await _first(ours, plain), *await _idle(ours)]
    finally:
        mesh.server.stop()


async def _frames(ours: Server, plain: Server) -> list[Figure]:
    rates: dict[str, list[float]] = {"ours": [], "plain": []}
    for _ in range(_ROUNDS):
        rates["plain"].append(await _rate(plain))
        rates["ours"].append(await _rate(ours))
    found = {name: statistics.median(each) for name, each in rates.items()}
    what = f"{READERS} clients receive {TALK_FRAMES} frames each: frames a second, beside the plain server"
    return [
        Figure("gateway.plain_per_s", found["plain"], "/s", "", "a plain `websockets` server"),
        Figure("gateway.frames_500", found["ours"] / found["plain"], "x", ">= 0.5", what),
    ]


async def _rate(server: Server) -> float:
    """Frames a second of `READERS` readers that all begin at once."""
    async with _sockets(server, READERS) as sockets:
        began = time.perf_counter()
        counts = await asyncio.gather(*(_read(socket, TALK_FRAMES) for socket in sockets))
        took = time.perf_counter() - began
    if any(count != TALK_FRAMES + 2 for count in counts):
        raise SystemExit(f"a reader got {min(counts)} frames")
    return sum(counts) / took


async def _first(ours: Server, plain: Server) -> list[Figure]:
    delays: dict[str, list[float]] = {"ours": [], "plain": []}
    for _ in range(_ROUNDS):
        delays["plain"] += await _first_frames(plain)
        delays["ours"] += await _first_frames(ours)
    found = {name: statistics.median(each) * 1000 for name, each in delays.items()}
    what = f"the first token at {FIRST} clients: what is added to the plain median"
    return [
        Figure("gateway.plain_first_ms", found["plain"], "ms", "", "the first token of the plain server"),
        Figure("gateway.first_frame_50", found["ours"] - found["plain"], "ms", "< 2", what),
    ]


async def _first_frames(server: Server) -> list[float]:
    """Seconds until the first token, of `FIRST` clients that ask one after the other."""
    found = []
    async with _sockets(server, FIRST) as sockets:
        for socket in sockets:
            began = time.perf_counter()
            await socket.send(_call(1))
            await socket.recv()
            await socket.recv()
            found.append(time.perf_counter() - began)
    return found


async def _idle(ours: Server) -> list[Figure]:
    """Clients that follow a topic in which nothing happens."""
    async with _sockets(ours, 20) as sockets:
        await asyncio.gather(*map(_follow, sockets))
    before = ours.memory_kb
    async with _sockets(ours, IDLE) as sockets:
        await asyncio.gather(*map(_follow, sockets))
        held = ours.memory_kb
        await asyncio.sleep(IDLE_SECONDS)
        after = ours.memory_kb
    what = f"memory of the gateway for each of {IDLE} idle clients"
    return [
        Figure("gateway.idle_kb", (held - before) / IDLE, "KB", "< 100", what),
        Figure(
            "gateway.idle_growth_kb",
            (after - held) / IDLE,
            "KB",
            "< 1",
            f"what that grows by in {IDLE_SECONDS} s, a client",
        ),
    ]


async def _follow(socket: ClientConnection) -> None:
    await socket.send('{"type":"subscribe","topic":"mesh"}')
    await socket.recv()
    await socket.recv()


def _call(count: int) -> str:
    body = {"params": {}, "input": {"messages": [{"role": "user", "content": str(count)}]}}
    call = {"type": "call", "capability": "llm.chat", "version": "2.0", "body": body}
    return msgspec.json.encode(call).decode()


_ACKS: Final = {seq: f'{{"type":"ack","upto":{seq}}}' for seq in range(0, TALK_FRAMES + 1, ACK_EVERY)}


async def _read(socket: ClientConnection, count: int) -> int:
    """Reads a stream to its end, acknowledging; how many frames came."""
    await socket.send(_call(count))
    for seq in itertools.count():
        try:
            await socket.recv(decode=False)
        except ConnectionClosed:
            break
        if seq and seq % ACK_EVERY == 0:
            with contextlib.suppress(ConnectionClosed):
                await socket.send(_ACKS[seq])
    return seq


@contextlib.asynccontextmanager
async def _sockets(server: Server, count: int) -> AsyncIterator[list[ClientConnection]]:
    """So many open connections, before anybody has said anything."""
    keys = itertools.cycle(server.keys)
    opened: list[ClientConnection] = []
    try:
        for _ in range(0, count, 50):
            opened += await asyncio.gather(*(_open(server.url, next(keys)) for _ in range(min(50, count))))
        yield opened
    finally:
        await asyncio.gather(*(socket.close() for socket in opened))


async def _open(url: str, key: str) -> ClientConnection:
    return await connect(
        url,
        subprotocols=[SUBPROTOCOL],  # type: ignore[list-item]
        additional_headers={"Authorization": f"Bearer {key}"} if key else None,
        compression=None,
        proxy=None,
        ping_interval=None,
        open_timeout=60,
    )


@contextlib.asynccontextmanager
async def _server(*arguments: str) -> AsyncIterator[Server]:
    """A process of gateway_peers.py."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.bench.gateway_peers",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=child_environment(),
        cwd=ROOT,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        said = msgspec.json.decode(await asyncio.wait_for(process.stdout.readline(), 60))
        yield Server(said["url"], said["keys"], process.pid)
        process.stdin.close()
        await asyncio.wait_for(process.wait(), 30)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
