"""Vectors of passages and queries from the `embed` service of this node.

Passages are embedded in the background, queries at once. No document text and no query is sent to another
node or to a model that needs the internet: a household's documents stay in it (docs/decisions/0116). Without
such an offer, search uses words alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from hearthnet import Bus, HearthNetError
from hearthnet_rag.index.index import Index
from hearthnet_rag.index.vectors import PendingVectors, QueryEmbedding, models_of, pending
from hearthnet_rag.text.text_analysis import likely_language

_log = logging.getLogger(__name__)
CAPABILITY: Final = "embed.text@1.0"
_PASSAGES: Final = 16
_BATCHES_A_LOOK: Final = 64
"""Batches between two checks of the offers for the model to use."""
_QUERY_SECONDS: Final = 2.0
_LOOK_AGAIN_SECONDS: Final = 30.0
_QUERY_CHARACTERS: Final = 2_000
_REFUSED: Final = frozenset({"bad_request", "payload_too_large"})
"""Codes that concern the passage itself, so that a retry would fail again."""


class EmbeddingOffer(msgspec.Struct, frozen=True):
    """An offer of vectors; `languages` are those that its provider vouches for."""

    name: str
    languages: list[str]
    max_texts: int
    max_tokens: int | None


class QueryVector(msgspec.Struct, frozen=True):
    """The vector of a query, or a notice that explains why words alone are used."""

    asked: QueryEmbedding | None = None
    notice: str | None = None


class Embedding:
    """Maintenance of the vectors of one index.

    `run` makes missing vectors until cancelled; `wake` reports new documents. Vectors are made after `idle`
    returns, because a model running beside an ingestion would compete with it for the processor.
    """

    def __init__(self, index: Index, bus: Bus, idle: Callable[[], Awaitable[None]]) -> None:
        self._index = index
        self._bus = bus
        self._node_id = bus.peer.node_id
        self._idle = idle
        self._news = asyncio.Event()
        self._current: EmbeddingOffer | None = None

    def wake(self) -> None:
        """Report that documents may have been added."""
        self._news.set()

    async def run(self) -> None:
        """Make missing vectors now, after each `wake` and every half minute."""
        while True:
            self._news.clear()
            try:
                await self.catch_up()
            except HearthNetError as error:
                _log.info("vectors are made later: %s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AGAIN_SECONDS):
                    await self._news.wait()

    async def catch_up(self) -> int:
        """Make all missing vectors, some passages a transaction; return the number of passages.

        A passage that the model refuses is found by words only, and does not stop the others.
        """
        made, after, name = 0, 0, ""
        while (model := await self._model()) is not None:
            after, name = after if model.name == name else 0, model.name
            for _ in range(_BATCHES_A_LOOK):
                await self._idle()
                found = await asyncio.to_thread(self._pending, model, after)
                if not found:
                    return made
                after = found[-1].chunk
                made += await self._of_batch(model, found)
        return made

    async def _of_batch(self, model: EmbeddingOffer, found: Sequence[PendingVectors]) -> int:
        """Make and store the vectors of some passages, and return how many got them."""
        vectors = [(passage, await self._of_passage(model, passage)) for passage in found]
        embedded = [(passage, windows) for passage, windows in vectors if windows]
        await asyncio.to_thread(self._index.keep_vectors, model.name, embedded)
        return len(embedded)

    async def _of_passage(self, model: EmbeddingOffer, passage: PendingVectors) -> list[list[float]]:
        """Return the vectors of its windows, empty if the model refuses them."""
        try:
            return await self._embed(model, passage.windows)
        except HearthNetError as error:
            if error.code not in _REFUSED:
                raise
            _log.info("%s takes no passage %d: %s", model.name, passage.chunk, error)
            return []

    async def outlook(self, corpus: str, query: str) -> QueryVector:
        """Return the vector of `query` if `corpus` has vectors of a model for its language."""
        models = await asyncio.to_thread(self._models, corpus)
        if not models:
            return QueryVector()
        model = self._current
        if model is None or model.name not in models:
            return QueryVector(notice="the model of the vectors is away: searched by words alone")
        if not likely_language(query, model.languages):
            return QueryVector()
        try:
            [vector] = await self._embed(model, [query[:_QUERY_CHARACTERS]], _QUERY_SECONDS)
        except HearthNetError as error:
            _log.info("a query is answered by words alone: %s", error)
            return QueryVector(notice="the model of the vectors does not answer: searched by words alone")
        return QueryVector(QueryEmbedding(model.name, vector))

    async def _model(self) -> EmbeddingOffer | None:
        """Choose the model anew: the first by name among the suitable offers."""
        offers = [view for view in await self._bus.offers(CAPABILITY) if view.node == self._node_id]
        models = [_model_of(view.params) for view in offers if not view.params.get("requires_internet")]
        fit = sorted((model for model in models if model.languages), key=lambda model: model.name)
        self._current = fit[0] if fit else None
        return self._current

    async def _embed(
        self, model: EmbeddingOffer, texts: Sequence[str], timeout_seconds: float | None = None
    ) -> list[list[float]]:
        vectors: list[list[float]] = []
        for at in range(0, len(texts), model.max_texts):
            body = {
                "params": {"model": model.name},
                "input": {"texts": list(texts[at : at + model.max_texts])},
            }
            reply = await self._bus.call(
                CAPABILITY, body, node=self._node_id, timeout_seconds=timeout_seconds
            )
            vectors += reply.output["embeddings"]
        return vectors

    def _models(self, corpus: str) -> list[str]:
        with self._index.reading() as connection:
            return models_of(connection, corpus)

    def _pending(self, model: EmbeddingOffer, after: int) -> list[PendingVectors]:
        with self._index.reading() as connection:
            return pending(connection, model.name, model.languages, model.max_tokens, _PASSAGES, after)


def _model_of(params: dict[str, Any]) -> EmbeddingOffer:
    return EmbeddingOffer(
        params["model"], params.get("languages") or [], params["max_texts"], params.get("max_tokens")
    )
