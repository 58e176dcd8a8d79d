"""Search by meaning: with an embed.text in the mesh, without one, and with one that fails or is slow."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import msgspec
import pytest

from hearthnet import Call, Offer, Reply, Service, capability
from hearthnet.bus.bus import Bus
from hearthnet.core.errors import HearthNetError
from hearthnet_embed import EmbedService
from hearthnet_embed.minilm import files
from hearthnet_market import MarketService, semantic_search
from hearthnet_market.semantic_search import Vectors, reciprocal_rank_fusion
from tests.helpers.leaving import leave_out
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for
from tests.services.market.trade import body, do, found, post

TOPICS = (("bicycle", "bike", "tyre", "cycle"), ("water", "filter", "rain"), ("bread", "bake", "flour"))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with much to do answers late, which is not what is tested here."""
    monkeypatch.setattr(semantic_search, "QUERY_SECONDS", 20.0)


class Params(msgspec.Struct):
    model: str = ""


class Input(msgspec.Struct):
    texts: list[str]


class Topics(Service):
    """Vectors by what a text is about; nothing of the three is a direction of its own."""

    name: ClassVar[str] = "topics"

    def __init__(self, model: str = "topics") -> None:
        super().__init__()
        self.model = model
        self.asked: list[list[str]] = []
        self.fails = False
        self.held: asyncio.Event | None = None

    def offers(self) -> list[Offer]:
        return [Offer(capability="embed.text@1.0", params={"model": self.model, "dim": 4, "max_texts": 256})]

    @capability("embed.text@1.0")
    async def embed(self, call: Call[Params, Input]) -> Reply:
        if self.fails:
            raise HearthNetError("internal_error", "no vectors today")
        if self.held is not None:
            await self.held.wait()
        self.asked.append(call.input.texts)
        vectors = [self._vector(text.lower()) for text in call.input.texts]
        return Reply({"embeddings": vectors, "dim": 4}, {"model": self.model})

    def _vector(self, text: str) -> list[float]:
        hits = [float(any(word in text for word in words)) for words in TOPICS]
        return [*hits, 0.0] if any(hits) else [0.0, 0.0, 0.0, 1.0]


async def _degraded(bus: Bus, query: str = "anything") -> bool:
    reply = await bus.call("market.search@1.0", body(query=query))
    return bool(reply.meta["degraded"])


async def _complete(bus: Bus) -> None:
    async def ready() -> bool:
        return not await _degraded(bus)

    await wait_for(ready, 30, "vectors of all posts")


@pytest.mark.req("MARKET-20")
@pytest.mark.asyncio
async def test_a_post_is_found_by_what_it_means(mesh: Mesh) -> None:
    topics = Topics()
    async with mesh.hosting(MarketService()), mesh.hosting(topics, at=mesh.guest), await mesh.bus() as bus:
        await post(bus, "Pump for a bicycle", body="Lent for a day.")
        await post(bus, "Filter for rain", body="Nearly new.")
        await post(bus, "Sourdough", body="Flour and patience; I bake on Fridays.")
        await _complete(bus)
        assert await found(bus, "my bike has a flat tyre") == ["Pump for a bicycle"]
        assert (await found(bus, "filter"))[0] == "Filter for rain"
        assert await found(bus, "quantum computers") == []
        replied = await do(bus, "search", query="a filter for my bike", k=1)
        assert len(replied["posts"]) == 1
        scores = [one["score"] for one in (await do(bus, "search", query="a filter for my bike"))["posts"]]
        assert scores == sorted(scores, reverse=True)
    titles = [text for texts in topics.asked for text in texts if "\n" in text]
    assert len(titles) == len(set(titles)) == 3


@pytest.mark.req("MARKET-20")
@pytest.mark.asyncio
async def test_what_changed_is_embedded_anew_and_what_ended_is_not_found(mesh: Mesh) -> None:
    async with mesh.hosting(MarketService()), mesh.hosting(Topics()), await mesh.bus() as bus:
        changed = await post(bus, "Pump for a bicycle")
        ended = await post(bus, "Cycle trailer")
        await _complete(bus)
        assert set(await found(bus, "tyre")) == {"Pump for a bicycle", "Cycle trailer"}
        await do(bus, "update", event_id=changed, fields={"title": "Bread knife"})
        await do(bus, "expire", event_id=ended, reason="withdrawn")
        assert "Cycle trailer" not in await found(bus, "tyre")
        await _complete(bus)
        assert await found(bus, "tyre") == []
        assert await found(bus, "flour") == ["Bread knife"]


@pytest.mark.req("MARKET-21")
@pytest.mark.asyncio
async def test_where_meanings_cannot_be_had_words_decide(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(semantic_search, "LOOK_SECONDS", 0.05)
    topics = Topics()
    topics.fails = True
    async with mesh.hosting(MarketService()), await mesh.bus() as bus:
        await post(bus, "Pump for a bicycle")
        assert await _degraded(bus)
        assert await found(bus, "pump") == ["Pump for a bicycle"]
        async with mesh.hosting(topics):
            assert await _degraded(bus)
            topics.fails = False
            await _complete(bus)
            topics.held = asyncio.Event()
            monkeypatch.setattr(semantic_search, "QUERY_SECONDS", 0.2)
            assert await _degraded(bus, "tyre")
            assert await found(bus, "pump") == ["Pump for a bicycle"]
            topics.held.set()
            monkeypatch.setattr(semantic_search, "QUERY_SECONDS", 20.0)
            await _complete(bus)

        async def gone() -> bool:
            return await _degraded(bus)

        await wait_for(gone, 30, "words again")
        async with mesh.hosting(Topics("another")):
            await _complete(bus)
            assert await found(bus, "tyre") == ["Pump for a bicycle"]


@pytest.mark.req("MARKET-20")
@pytest.mark.asyncio
async def test_the_built_in_model_finds_what_is_meant(mesh: Mesh, tmp_path: Any) -> None:
    try:
        files.checked_files(tmp_path / "memory")
    except HearthNetError as error:
        leave_out(error.message)
    async with mesh.hosting(MarketService()), mesh.hosting(EmbedService()), await mesh.bus() as bus:
        await post(bus, "Bicycle pump", body="Lent out for a day.")
        await post(bus, "Sourdough starter", body="Fed this morning.")
        await post(bus, "Piano lessons", body="For children, on Fridays.")
        await _complete(bus)

        async def sees() -> bool:
            return (await found(bus, "my bike has a flat tyre"))[:1] == ["Bicycle pump"]

        await wait_for(sees, 30, "the pump")


@pytest.mark.req("MARKET-20")
def test_two_rankings_are_fused() -> None:
    assert list(reciprocal_rank_fusion(["a", "b"], ["b", "c"])) == ["b", "a", "c"]
    assert reciprocal_rank_fusion([], []) == {}


@pytest.mark.req("MARKET-21")
def test_the_vectors_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(semantic_search, "MAX_VECTORS", 2)
    kept = Vectors()
    assert kept.nearest([1.0, 0.0], 5) == []
    kept.put(("a", "1"), [1.0, 0.0])
    kept.put(("b", "1"), [0.0, 1.0])
    assert kept.nearest([1.0, 0.1], 5) == ["a"]
    kept.put(("c", "1"), [0.6, 0.8])
    assert len(kept) == 2
    assert kept.nearest([1.0, 0.0], 5) == ["a", "c"]
    assert kept.missing([("a", "1"), ("c", "2")]) == [1]
    assert len(kept) == 1
    kept.clear()
    assert len(kept) == 0


@pytest.mark.req("MARKET-39")
@pytest.mark.asyncio
async def test_a_muted_author_is_not_found_by_meaning(mesh: Mesh) -> None:
    async with (
        mesh.hosting(MarketService()),
        mesh.hosting(Topics()),
        await mesh.bus() as bus,
        await mesh.guest_bus() as neighbour,
    ):
        await post(neighbour, "Pump for a bicycle")
        await _complete(bus)
        assert await found(bus, "tyre") == ["Pump for a bicycle"]
        await bus.call("market.mute@1.0", body(author=neighbour.peer.node_id))
        assert await found(bus, "tyre") == await found(bus, "pump") == []
        assert await found(neighbour, "tyre") == ["Pump for a bicycle"]
