"""Calls and streams over the bus beside raw NATS, nats.micro, FastStream and gRPC.

Everything is a ratio to raw nats-py request/reply with the same bytes, measured in the same run and in turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from tests.bench import stream_memory
from tests.bench.bus_peers import TALK_FRAMES
from tests.bench.figures import ROUNDS, Figure
from tests.bench.rivals import Ask, Rival, answering, rivals
from tests.bench.stream_memory import talk
from tests.helpers.mesh import Mesh, start_mesh
from tests.helpers.nats_server import NatsServer

IN_FLIGHT: Final = 64
_SECONDS: Final = 1.0
_SINGLE: Final = 150
_STREAMS: Final = 64
_MANY: Final = 500
UNLIMITED: Final = "[limits]\ncapability_soft = 0\ncapability_hard = 0\ntotal_soft = 0\ntotal_hard = 0\n"
"""How much another node may ask a second is counted as ever, and here no number is too large."""


def figures() -> list[Figure]:
    """Ratios of throughput and latency, and streams."""
    with tempfile.TemporaryDirectory(prefix="hn-bench-") as folder:
        return asyncio.run(_measure(Path(folder)))


async def _measure(folder: Path) -> list[Figure]:
    async with _servers(folder) as (mesh, plain):
        async with rivals(mesh, plain.url) as all_of_them:
            found = await _calls(list(all_of_them.values()))
        return found + await _streams(mesh, plain.url)


@contextlib.asynccontextmanager
async def _servers(folder: Path) -> AsyncIterator[tuple[Mesh, NatsServer]]:
    mesh, plain = await start_mesh(folder / "mesh"), NatsServer.start(folder / "plain")
    mesh.home.config_file.write_text(UNLIMITED)
    try:
        yield mesh, plain
    finally:
        mesh.server.stop()
        plain.stop()


async def _calls(those: list[Rival]) -> list[Figure]:
    many: dict[str, list[float]] = {rival.name: [] for rival in those}
    single: dict[str, list[float]] = {rival.name: [] for rival in those}
    for rival in those:
        await _throughput(rival.ask, 0.2)
    for _ in range(ROUNDS):
        for rival in those:
            many[rival.name].append(await _throughput(rival.ask, _SECONDS))
            single[rival.name].append(await _latency(rival.ask))
    rates = {name: statistics.median(found) for name, found in many.items()}
    delays = {name: statistics.median(found) for name, found in single.items()}
    floor, delay = rates["floor"], delays["floor"]
    others = ("micro", "faststream", "grpc")
    ahead = rates["ours"] / max(rates["faststream"], rates["grpc"])
    return [
        Figure("call.floor_per_s", floor, "/s", "", f"raw nats-py request/reply, {IN_FLIGHT} in flight"),
        Figure("call.floor_ms", delay * 1e3, "ms", "", "the same, 1 in flight, median"),
        Figure(
            "call.throughput_64",
            rates["ours"] / floor,
            "x",
            ">= 0.60",
            "`bus.call`, boxed, checked, traced: calls a second",
        ),
        Figure("call.latency_1", delays["ours"] / delay, "x", "< 1.5", "the same, 1 in flight, median time"),
        *(
            Figure(f"call.{name}.throughput_64", rates[name] / floor, "x", "", f"{name}: calls a second")
            for name in others
        ),
        *(
            Figure(f"call.{name}.latency_1", delays[name] / delay, "x", "", f"{name}: median time")
            for name in others
        ),
        Figure("call.ahead", ahead, "x", ">= 1", "`bus.call` against the faster of FastStream and gRPC"),
    ]


async def _throughput(ask: Ask, seconds: float) -> float:
    """Answers a second with `IN_FLIGHT` questions on their way."""
    until, answered = time.perf_counter() + seconds, 0

    async def keep_asking() -> None:
        nonlocal answered
        while time.perf_counter() < until:
            await ask()
            answered += 1

    began = time.perf_counter()
    await asyncio.gather(*(keep_asking() for _ in range(IN_FLIGHT)))
    return answered / (time.perf_counter() - began)


async def _latency(ask: Ask) -> float:
    """Median seconds of one question after the other."""
    times = []
    for _ in range(_SINGLE):
        began = time.perf_counter()
        await ask()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


async def _streams(mesh: Mesh, plain: str) -> list[Figure]:
    async with (
        answering("ours", f"{mesh.home.path}={mesh.server.url}"),
        answering("floor", plain),
        await mesh.bus("bench", at=mesh.guest) as bus,
        _raw_streams(plain) as raw,
    ):
        ours: list[float] = []
        floor: list[float] = []
        for _ in range(ROUNDS):
            floor.append(await _frames(raw, _STREAMS))
            ours.append(await _frames(lambda: talk(bus), _STREAMS))
    many = await stream_memory.measure(mesh, _MANY)
    ratio = statistics.median(ours) / statistics.median(floor)
    return [
        Figure("stream.floor_per_s", statistics.median(floor), "/s", "", "raw nats-py frames to one inbox"),
        Figure("stream.frames", ratio, "x", ">= 0.5", f"frames a second, {_STREAMS} streams at once"),
        Figure("stream.many_s", many.seconds, "s", "", f"{_MANY} streams of {TALK_FRAMES} frames at once"),
        Figure("stream.reader_kb", many.reader_kb, "KB", "< 128", "memory of each of these at its reader"),
        Figure("stream.provider_kb", many.provider_kb, "KB", "< 128", "the same at its provider"),
    ]


async def _frames(talk: Callable[[], Awaitable[int]], streams: int) -> float:
    began = time.perf_counter()
    counts = await asyncio.gather(*(talk() for _ in range(streams)))
    return sum(counts) / (time.perf_counter() - began)


@contextlib.asynccontextmanager
async def _raw_streams(url: str) -> AsyncIterator[Callable[[], Awaitable[int]]]:
    """As many raw messages, all to one wildcard inbox, as the fastest reader of the library takes them."""
    import nats

    client = await nats.connect(url)
    open_streams: dict[str, tuple[list[int], asyncio.Event]] = {}

    async def heard(message: Any) -> None:
        count, over = open_streams[message.subject]
        count[0] += 1
        if count[0] == TALK_FRAMES:
            over.set()

    inbox = client.new_inbox()
    await client.subscribe(f"{inbox}.*", cb=heard)
    numbers = iter(range(10**9))

    async def talk() -> int:
        subject = f"{inbox}.{next(numbers)}"
        open_streams[subject] = [0], asyncio.Event()
        await client.publish("bench.talk", b"%d" % TALK_FRAMES, reply=subject)
        await open_streams[subject][1].wait()
        return TALK_FRAMES

    yield talk
    await client.close()
