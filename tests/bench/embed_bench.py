"""What vectors cost: the built-in embedding model, asked over the bus on a real server (docs/embed.md)."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from hearthnet.bus.bus import Bus
from hearthnet.core.errors import HearthNetError
from hearthnet_embed import EmbedService
from tests.bench.figures import Figure
from tests.helpers.mesh import start_mesh

_SECONDS: Final = 6.0
_CALLERS: Final = 32
_QUESTION: Final = "How do I boil rainwater so that it is safe to drink?"
_PASSAGE: Final = (
    "Collect the rain from a clean roof, let the first of it run away, and keep what follows in a closed "
    "barrel in the shade. Before you drink of it, filter it through a cloth and have it boil for a minute. "
)


def figures() -> list[Figure]:
    """A question alone, questions of many at once, and passages by the hundred."""
    with tempfile.TemporaryDirectory(prefix="hn-bench-") as folder:
        cost = asyncio.run(_measure(Path(folder)))
    return [
        Figure("embed.question_ms", cost["alone"], "ms", "", "a vector for one question, to its reply"),
        Figure("embed.questions_s", cost["many"], "1/s", "", f"questions of {_CALLERS} callers at once"),
        Figure("embed.question_beside_ms", cost["beside"], "ms", "", "a question beside passages"),
        Figure("embed.passages_s", cost["passages"], "1/s", "", "passages of two sentences, 64 in a call"),
    ]


async def _measure(folder: Path) -> dict[str, float]:
    mesh = await start_mesh(folder)
    try:
        async with mesh.hosting(EmbedService()), await mesh.bus() as bus:
            await _ask(bus, [_QUESTION])
            alone = await _latencies(bus, _SECONDS / 2)
            many = await _questions(bus)
            passages, beside = await _passages(bus)
            return {
                "alone": statistics.median(alone),
                "many": many,
                "beside": statistics.median(beside),
                "passages": passages,
            }
    finally:
        mesh.server.stop()


async def _ask(bus: Bus, texts: list[str]) -> Any:
    while True:
        try:
            return await bus.call("embed.text", {"params": {}, "input": {"texts": texts}}, timeout_seconds=60)
        except HearthNetError as error:
            if error.code != "capacity_exceeded":
                raise
            await asyncio.sleep((error.retry_after_ms or 50) / 1000)


async def _latencies(bus: Bus, seconds: float) -> list[float]:
    """Milliseconds of one question after another."""
    end, found = time.monotonic() + seconds, []
    while time.monotonic() < end:
        began = time.perf_counter()
        await _ask(bus, [_QUESTION])
        found.append((time.perf_counter() - began) * 1000)
    return found


async def _questions(bus: Bus) -> float:
    counts = await asyncio.gather(*(_latencies(bus, _SECONDS / 2) for _ in range(_CALLERS)))
    return sum(map(len, counts)) / (_SECONDS / 2)


async def _passages(bus: Bus) -> tuple[float, list[float]]:
    """Passages a second, and what a question takes meanwhile."""
    beside = asyncio.create_task(_latencies(bus, _SECONDS))
    end, done, began = time.monotonic() + _SECONDS, 0, time.monotonic()
    while time.monotonic() < end:
        await _ask(bus, [f"{number}. {_PASSAGE}" for number in range(done, done + 64)])
        done += 64
    return done / (time.monotonic() - began), await beside
