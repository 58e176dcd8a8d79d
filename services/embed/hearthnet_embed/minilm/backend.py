"""all-MiniLM-L6-v2, offered once its files are validated; early calls wait for loading."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from hearthnet import HearthNetError
from hearthnet_embed.backend import Embedded, Profile
from hearthnet_embed.batching import Batching
from hearthnet_embed.minilm.files import DIM, MAX_TOKENS, Files

if TYPE_CHECKING:
    from hearthnet_embed.minilm.model import Model

PROFILE: Final = Profile(
    model="all-MiniLM-L6-v2",
    dim=DIM,
    backend="builtin",
    aliases=("sentence-transformers/all-MiniLM-L6-v2", "all-minilm", "all-minilm:l6-v2"),
    max_tokens=MAX_TOKENS,
    languages=("en",),
)
PREWARM_SECONDS: Final = 20.0
_WARM: Final = ("a bicycle pump to lend",)


class MiniLm:
    """The built-in model. Call `load` once, in a task of its own."""

    def __init__(self, files: Files, threads: int) -> None:
        self.profile = PROFILE
        self._files = files
        self._threads = threads
        self._pool = ThreadPoolExecutor(2, "minilm")
        self._model: asyncio.Future[Model] = asyncio.get_running_loop().create_future()
        self._asked = asyncio.Event()
        self._batching = Batching(self._vectors, self._pool)

    async def load(self) -> None:
        """Load the model at the first call, or else after `PREWARM_SECONDS`.

        The delay leaves the computer to the other processes of a node that has just started.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PREWARM_SECONDS):
                await self._asked.wait()
        await self._load()

    async def _load(self) -> None:
        """Load the model and embed one line to warm it up; an error reaches waiting calls too.

        Raises:
            HearthNetError: `not_implemented` if it cannot be loaded.
        """
        try:
            model = await self._in_thread(_loaded, self._files, self._threads)
        except HearthNetError as error:
            if not self._model.done():
                self._model.set_exception(error)
                self._model.exception()  # marked as retrieved, in case no call waits for it
            raise
        if not self._model.done():
            self._model.set_result(model)
            await self.embed(_WARM)

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """As `EmbeddingBackend.embed`."""
        self._asked.set()
        model = await asyncio.shield(self._model)
        read = await self._in_thread(model.tokens, texts)
        vectors = await self._batching.vectors([one.ids for one in read])
        cut = tuple(index for index, one in enumerate(read) if one.truncated)
        return Embedded(vectors, cut, sum(len(one.ids) for one in read))

    async def close(self) -> None:
        """As `EmbeddingBackend.close`."""
        if not self._model.done():
            self._model.cancel()
        await self._batching.close()
        self._pool.shutdown(wait=False)

    def _vectors(self, texts: list[Sequence[int]]) -> Sequence[Any]:
        return list(self._model.result().vectors(texts))

    async def _in_thread(self, work: Any, *given: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *given)


def _loaded(files: Files, threads: int) -> Model:
    # Imported late: the libraries of the model may be missing, and take time and memory.
    try:
        from hearthnet_embed.minilm.model import Model
    except (ImportError, OSError, RuntimeError) as error:
        raise HearthNetError(
            "not_implemented", f"the libraries of the embedding model cannot be loaded: {error}"
        ) from error
    return Model(files, threads)
