"""A market of 100,000 posts: listing, searching, and deriving the view from the log (docs/market.md)."""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from hearthnet.bus.bus import Bus
from hearthnet.bus.store import Store
from hearthnet.core import ids
from hearthnet.core.times import now_ms, rfc3339
from hearthnet.service.effects.event_log import Event
from hearthnet_market import MarketService
from tests.bench.figures import Figure
from tests.helpers.mesh import Mesh, start_mesh
from tests.helpers.waiting import wait_for

POSTS: Final = 100_000
_SEED: Final = 8
_TURNS: Final = 41
_FLUSH: Final = 1000
_FILL_SECONDS: Final = 20.0
_SYLLABLES: Final = (
    "wa",
    "ter",
    "fil",
    "gar",
    "den",
    "lam",
    "po",
    "sto",
    "ve",
    "bri",
    "ck",
    "sa",
    "mi",
    "ro",
)
_COMMON: Final = 10
"""How many of the words of the vocabulary, its most frequent ones, are asked for together."""


def figures() -> list[Figure]:
    """Of a log made with a seed, on a real server: times of the view, and over the bus."""
    with tempfile.TemporaryDirectory(prefix="hn-bench-") as folder:
        return asyncio.run(_measure(Path(folder)))


async def _measure(folder: Path) -> list[Figure]:
    mesh = await start_mesh(folder)
    try:
        words = await _fill(mesh)
        market = MarketService()
        began = time.perf_counter()
        async with mesh.hosting(market), await mesh.bus() as bus:
            rebuilt = time.perf_counter() - began
            questions = _questions(market, bus, words)
            took = {name: await _median(ask) for name, ask in questions.items()}
    finally:
        mesh.server.stop()
    return [
        Figure(
            "market.rebuild_s",
            rebuilt,
            "s",
            "< 10",
            f"the view of {POSTS:,} posts from the log, to its offers",
        ),
        Figure("market.list_ms", took["list"], "ms", "< 5", "the newest 50 posts, by the view"),
        Figure(
            "market.list_tag_ms", took["tag"], "ms", "< 5", "50 posts with the commonest tag, by the view"
        ),
        Figure(
            "market.list_bus_ms", took["list bus"], "ms", "< 5", "`market.list` with 50 posts, over the bus"
        ),
        Figure(
            "market.search_ms", took["search"], "ms", "< 20", "three words, one of them rare, by the view"
        ),
        Figure(
            "market.search_common_ms",
            took["common"],
            "ms",
            "< 20",
            "three words that most posts have, by the view",
        ),
        Figure(
            "market.search_bus_ms",
            took["search bus"],
            "ms",
            "< 20",
            "`market.search` for three words, over the bus",
        ),
    ]


def _questions(market: MarketService, bus: Bus, words: list[str]) -> dict[str, Callable[[], Awaitable[Any]]]:
    from hearthnet_market.schemas import ListInput

    view, now = market._view, now_ms()
    mixed = f"{words[3]} {words[40]} {words[-20]}"
    common = " ".join(words[:3])

    def call(verb: str, **given: Any) -> Callable[[], Awaitable[Any]]:
        return lambda: bus.call(f"market.{verb}@1.0", {"params": {}, "input": given})

    def look(question: Callable[..., Any], *given: Any) -> Callable[[], Awaitable[Any]]:
        return lambda: asyncio.to_thread(question, *given)

    return {
        "list": look(view.current, ListInput(0, 50), now),
        "tag": look(view.current, ListInput(0, 50, None, (words[0],)), now),
        "list bus": call("list"),
        "search": look(view.search, mixed, 10, now),
        "common": look(view.search, common, 10, now),
        "search bus": call("search", query=mixed),
    }


async def _median(ask: Callable[[], Awaitable[Any]]) -> float:
    times = []
    for _ in range(_TURNS):
        began = time.perf_counter()
        await ask()
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


async def _kept(store: Store, posts: int) -> None:
    """So many are in the log: the server drops what comes faster than it can keep."""

    async def there() -> bool:
        return bool((await store.js.stream_info("MARKET")).state.messages >= posts)

    await wait_for(there, _FILL_SECONDS, f"{posts} posts in the log")


async def _fill(mesh: Mesh) -> list[str]:
    """Makes the log, while the server may leave syncing to the system; its words, the commonest first."""
    chance = random.Random(_SEED)
    words = ["".join(chance.choices(_SYLLABLES, k=chance.randint(2, 4))) for _ in range(9000)]
    words = list(dict.fromkeys(words))
    weights = list(itertools.accumulate(1 / (place + _COMMON) for place in range(len(words))))
    settings = mesh.server.config.read_text()
    mesh.server.stop()
    mesh.server.config.write_text(settings.replace("sync_interval: always", 'sync_interval: "2m"'))
    mesh.server = mesh.server.again()
    async with await mesh.store() as store:
        client = store.link.client
        for number in range(POSTS):
            event = _event(mesh.identity.node_id, chance, words, weights)
            subject = f"mk.post.{mesh.identity.token}.{event.client_id}"
            await client.publish(subject, msgspec.json.encode(event))
            if (number + 1) % _FLUSH == 0:
                await _kept(store, number + 1)
    port = mesh.server.url.rpartition(":")[2]
    mesh.server.stop()
    mesh.server.config.write_text(settings.replace("port: -1", f"port: {port}", 1))
    mesh.server = mesh.server.again()
    return words


def _event(node: str, chance: random.Random, words: list[str], weights: list[float]) -> Event:
    said = chance.choices(words, cum_weights=weights, k=30)
    client_id, now = ids.new_ulid(), now_ms()
    data = {
        "client_id": client_id,
        "category": chance.choice(("offer", "request", "info", "emergency")),
        "title": " ".join(said[:5]),
        "body": " ".join(said[5:]),
        "tags": [*dict.fromkeys((words[0], *said[:2]))],
        "ttl_seconds": 2_592_000,
    }
    return Event(
        event_id=ids.new_ulid(now),
        event_type="market.post.created",
        wall_clock=rfc3339(now),
        community_id=node,
        author=node,
        client_id=client_id,
        data=data,
        arguments_digest="blake3:" + "0" * 64,
        frame="A" * 1200,
        approval=None,
    )
