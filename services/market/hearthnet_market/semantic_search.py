"""Search by meaning while the mesh has an `embed.text`: words and vectors, fused.

Vectors of the newest current posts are computed in the background as posts and offers arrive, and kept under
(event id, hash of title and body). A search embeds only its query, with a short deadline. If that fails, or
vectors are still missing, the reply says `degraded` (docs/decisions/0120). Every member may read posts, so
any member's model may embed them. This module keeps no text of a post.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hearthnet import Bus, HearthNetError, OfferView
from hearthnet.core import TaskSet, content_hash, now_ms
from hearthnet_market.read_model import View

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float32]

_log = logging.getLogger(__name__)
EMBED: Final = "embed.text"
MAX_VECTORS: Final = 5_000
QUERY_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 5.0
_BATCH: Final = 64
_BATCH_SECONDS: Final = 60.0
_MOST_CHARACTERS: Final = 8_192
_CANDIDATES: Final = 50
_LEAST_LIKENESS: Final = 0.3
"""Cosine below which a post counts as unrelated, whatever the other scores are."""
_FLATTENED: Final = 60
"""The constant of reciprocal rank fusion, as published."""
Look = Callable[..., Awaitable[Any]]


class Ranked(msgspec.Struct, frozen=True):
    """Result of a search: posts, best first, and the place of the log that it reflects.

    `degraded` tells that words alone decided, or that vectors were missing.
    """

    posts: list[dict[str, Any]]
    lamport: int
    degraded: bool


class Vectors:
    """At most `MAX_VECTORS` vectors of one model; the least recently used are dropped first.

    The key is (event id, hash of the text).
    """

    def __init__(self) -> None:
        self._vectors: OrderedDict[tuple[str, str], Array] = OrderedDict()
        self._stacked: tuple[list[tuple[str, str]], Array] | None = None

    def __len__(self) -> int:
        return len(self._vectors)

    def missing(self, keys: Sequence[tuple[str, str]]) -> list[int]:
        """Return the indexes of the keys without a vector, and drop vectors of all other keys."""
        current = set(keys)
        for obsolete in [key for key in self._vectors if key not in current]:
            del self._vectors[obsolete]
            self._stacked = None
        return [index for index, key in enumerate(keys) if key not in self._vectors]

    def put(self, key: tuple[str, str], vector: Sequence[float]) -> None:
        """Store one vector."""
        import numpy as np

        self._vectors[key] = np.asarray(vector, np.float32)
        self._stacked = None
        while len(self._vectors) > MAX_VECTORS:
            self._vectors.popitem(last=False)

    def clear(self) -> None:
        """Drop all vectors."""
        self._vectors.clear()
        self._stacked = None

    def nearest(self, query: Sequence[float], most: int) -> list[str]:
        """Return the ids of the posts nearest in meaning, nearest first. Blocks for a few ms."""
        import numpy as np

        if not self._vectors:
            return []
        if self._stacked is None:
            self._stacked = list(self._vectors), np.stack(list(self._vectors.values()))
        keys, matrix = self._stacked
        likeness = matrix @ np.asarray(query, np.float32)
        best = np.argsort(-likeness, kind="stable")[:most]
        near = [keys[index] for index in best if likeness[index] >= _LEAST_LIKENESS]
        for key in reversed(near):
            if key in self._vectors:
                self._vectors.move_to_end(key)
        return [event_id for event_id, _ in near]


def reciprocal_rank_fusion(words: Sequence[str], meanings: Sequence[str]) -> dict[str, float]:
    """Return the scores of ids by reciprocal rank fusion of two rankings, best first."""
    scores: dict[str, float] = {}
    for ranking in (words, meanings):
        for rank, event_id in enumerate(ranking, start=1):
            scores[event_id] = scores.get(event_id, 0.0) + 1 / (_FLATTENED + rank)
    return dict(sorted(scores.items(), key=lambda item: -item[1]))


class SemanticIndex:
    """Search by words and vectors.

    `look` runs a query of the view in a thread. Call `open` once the view is open, and `close` before the
    view is closed.
    """

    def __init__(self, bus: Bus, view: View, look: Look) -> None:
        self._bus = bus
        self._view = view
        self._look = look
        self._tasks = TaskSet()
        self._offers: dict[object, OfferView] = {}
        self._woken = asyncio.Event()
        self._vectors = Vectors()
        self._model = ""
        self.complete = False
        """True if every current post has its vector."""

    def open(self) -> None:
        """Start to follow offers of embeddings, and the posts."""
        self._tasks.start(self._watch(), "watch for embeddings")
        self._tasks.start(self._follow(), "embed the posts")

    async def close(self) -> None:
        """Stop following offers and posts."""
        await self._tasks.close()

    def wake(self) -> None:
        """Report that posts may have changed."""
        self.complete = False
        self._woken.set()

    async def search(self, query: str, k: int, seconds: float, without: Collection[str] = ()) -> Ranked:
        """Return current posts by words and meaning; `seconds` are left for the reply.

        Posts of the authors in `without` are left out.
        """
        most = max(k, _CANDIDATES) if self._model else k
        posts, lamport = await self._look(self._view.search, query, most, now_ms(), without)
        nearest = await self._nearest(query, min(QUERY_SECONDS, seconds / 2))
        if nearest is None:
            return Ranked(posts[:k], lamport, degraded=True)
        found = {post["event_id"]: post for post in posts}
        scores = reciprocal_rank_fusion(list(found), nearest)
        lacking = [event_id for event_id in nearest if event_id not in found]
        found |= await self._look(self._view.chosen, lacking, now_ms(), without)
        ranked = [{**found[one], "score": score} for one, score in scores.items() if one in found]
        return Ranked(ranked[:k], lamport, degraded=not self.complete)

    async def _nearest(self, query: str, seconds: float) -> list[str] | None:
        """Return the ids of posts nearest in meaning, or None if the query could not be embedded."""
        model = self._model
        if not model or not self._vectors:
            return [] if model and self.complete else None
        try:
            async with asyncio.timeout(seconds):
                (vector,) = await self._embed([query], model, seconds)
        except (HearthNetError, TimeoutError) as error:
            _log.info("searching by words alone: %s", error)
            return None
        # If the model was replaced during the call, the stored vectors are of another model than the query's.
        return self._vectors.nearest(vector, _CANDIDATES) if model == self._model else None

    async def _embed(self, texts: list[str], model: str, seconds: float) -> list[list[float]]:
        body = {"params": {"model": model}, "input": {"texts": texts}}
        reply = await self._bus.call(EMBED, body, timeout_seconds=seconds)
        vectors: list[list[float]] = reply.output["embeddings"]
        if len(vectors) != len(texts):
            raise HearthNetError("internal_error", f"{len(vectors)} vectors came for {len(texts)} texts")
        return vectors

    async def _watch(self) -> None:
        """Keep the current model known: one of this node first, else the one offered first."""
        async with self._bus.watch(EMBED) as changes:
            async for change in changes:
                if change.event == "gone":
                    self._offers.pop(change.view.key, None)
                else:
                    self._offers[change.view.key] = change.view
                self._choose()

    def _choose(self) -> None:
        views = sorted(self._offers.values(), key=lambda view: view.node != self._bus.peer.node_id)
        models = [str(view.params["model"]) for view in views]
        if self._model in models:
            return
        self._model = models[0] if models else ""
        self._vectors.clear()
        self.wake()

    async def _follow(self) -> None:
        while True:
            self._woken.clear()
            if self._model:
                try:
                    await self._embed_missing(self._model)
                except HearthNetError as error:
                    _log.info("posts wait for their vectors: %s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._woken.wait()

    async def _embed_missing(self, model: str) -> None:
        """Compute the missing vectors of the newest current posts."""
        await asyncio.to_thread(importlib.import_module, "numpy")
        found = await self._look(self._view.recent, MAX_VECTORS, now_ms())
        texts = [f"{title}\n{body}"[:_MOST_CHARACTERS] for _, title, body in found]
        keys = [(post[0], content_hash(text.encode())) for post, text in zip(found, texts, strict=True)]
        lacking = self._vectors.missing(keys)
        for start in range(0, len(lacking), _BATCH):
            batch = lacking[start : start + _BATCH]
            vectors = await self._embed([texts[index] for index in batch], model, _BATCH_SECONDS)
            if model != self._model:
                return
            for index, vector in zip(batch, vectors, strict=True):
                self._vectors.put(keys[index], vector)
        self.complete = not self._woken.is_set()
