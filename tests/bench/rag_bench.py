"""Search in a large corpus, and reading a book."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from hearthnet_rag import RagService
from hearthnet_rag.index.index import Index
from hearthnet_rag.search.search import ANY, Filter, search
from tests.bench.figures import Figure
from tests.bench.rag_corpus import CORPUS, LANGUAGE, LENGTH, fill, queries
from tests.helpers.mesh import start_mesh
from tests.quality.handbook import is_installed
from tests.quality.handbook_pages import ingest

PASSAGES: Final = 100_000
_SEED: Final = 8
_QUERIES: Final = 200
_WARM: Final = 20
_K: Final = 5


def figures() -> list[Figure]:
    """Medians over queries that differ, after some others; the index is in the page cache, as a node's is."""
    with tempfile.TemporaryDirectory(prefix="hn-bench-") as folder:
        library, filtered, called = asyncio.run(_measure(Path(folder)))
    what = f"{PASSAGES:,} passages of {LENGTH} words"
    return [
        Figure("rag.query_ms", statistics.median(library), "ms", "< 15", f"median, {what}, in the library"),
        Figure("rag.query_p95_ms", _p95(library), "ms", "", "95 of 100 are answered within"),
        Figure("rag.query_filtered_ms", statistics.median(filtered), "ms", "", "with a language and a year"),
        Figure(
            "rag.query_call_ms",
            statistics.median(called),
            "ms",
            "< 15",
            "`rag.query` over the bus, to its reply",
        ),
        *_reading(),
    ]


def _reading() -> list[Figure]:
    if not is_installed():
        return []
    found = []
    for language in ("en", "de"):
        with (
            tempfile.TemporaryDirectory(prefix="hn-bench-") as folder,
            contextlib.closing(Index(Path(folder))) as index,
        ):
            began = time.perf_counter()
            ingest(index, language)
            seconds = time.perf_counter() - began
        found.append(
            Figure(
                f"rag.handbook_{language}_s", seconds, "s", "< 20", f"read the Debian handbook ({language})"
            )
        )
    return found


async def _measure(folder: Path) -> tuple[list[float], list[float], list[float]]:
    mesh = await start_mesh(folder)
    asked = queries(_QUERIES, _SEED + 1)
    wanted = Filter(language=LANGUAGE, min_year=2000)
    try:
        place = mesh.home.service("rag")
        await asyncio.to_thread(fill, place, PASSAGES, _SEED)
        with contextlib.closing(Index(place)) as index:
            library = _timed(asked, lambda query: search(index, CORPUS, query, _K, ANY))
            filtered = _timed(asked, lambda query: search(index, CORPUS, query, _K, wanted))
        async with mesh.hosting(RagService()), await mesh.bus() as bus:

            async def call(query: str) -> None:
                await bus.call("rag.query@1.0", {"params": {"corpus": CORPUS}, "input": {"query": query}})

            return library, filtered, await _called(asked, call)
    finally:
        mesh.server.stop()


def _timed(asked: list[str], find: Callable[[str], object]) -> list[float]:
    times = []
    for query in asked:
        began = time.perf_counter()
        find(query)
        times.append((time.perf_counter() - began) * 1000)
    return times[_WARM:]


async def _called(asked: list[str], call: Callable[[str], Awaitable[None]]) -> list[float]:
    times = []
    for query in asked:
        began = time.perf_counter()
        await call(query)
        times.append((time.perf_counter() - began) * 1000)
    return times[_WARM:]


def _p95(times: list[float]) -> float:
    return statistics.quantiles(times, n=20)[-1]
