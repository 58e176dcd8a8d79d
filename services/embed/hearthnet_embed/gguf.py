"""An embedding model in a GGUF file, executed by llama.cpp in this process."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from hearthnet import HearthNetError
from hearthnet.models import check_llama, file_stamp, llama_library, open_llama
from hearthnet_embed.backend import Embedded, Profile
from hearthnet_embed.local_models import Box, Loadable

if TYPE_CHECKING:
    from xllamacpp import CommonParams, Server

MAX_TOKENS: Final = 512
"""Context of every such model; a longer text is cut."""
_PIECE: Final = 8
_MOST_WAITING: Final = 64
"""Calls; further ones are refused."""
_RETRY_MS: Final = 500
_TOKENS: Final = re.compile(r"\((\d+) tokens\)")
_SPARE: Final = 0.95
_MOST_CUTS: Final = 8


class Engine:
    """The loaded model. Its methods block, and must not run concurrently."""

    def __init__(self, file: Path, threads: int) -> None:
        """Load the model from `file`.

        Raises:
            HearthNetError: `not_implemented` if llama.cpp cannot use the file or the model makes no vectors.
        """
        self._server: Server = open_llama(file, threads, _sized)
        try:
            self.dim = self._size()
        except HearthNetError as error:
            if "pooling" not in error.message.lower():
                raise HearthNetError(
                    "not_implemented", f"the model in {file} makes no vectors: {error.message}"
                ) from error
            self._server = open_llama(file, threads, _averaged)
            self.dim = self._size()

    def _size(self) -> int:
        (vector,), _ = self._embed_texts(["water"])
        return len(vector)

    def embed(self, texts: Sequence[str]) -> Embedded:
        """Return the vectors of `texts`; texts that are too long are cut."""
        try:
            vectors, tokens = self._embed_texts(texts)
            return Embedded(vectors, (), tokens)
        except _TooLongError:
            found = [self._one(text) for text in texts]
        cut = tuple(index for index, (_, _, was_cut) in enumerate(found) if was_cut)
        return Embedded([vector for vector, _, _ in found], cut, sum(tokens for _, tokens, _ in found))

    def _one(self, text: str) -> tuple[Any, int, bool]:
        """Return the vector of one text, its tokens, and whether the text was cut."""
        shortened = text
        for _ in range(_MOST_CUTS):
            try:
                (vector,), tokens = self._embed_texts([shortened])
                return vector, tokens, shortened != text
            except _TooLongError as error:
                shortened = shortened[: max(1, int(len(shortened) * MAX_TOKENS / error.tokens * _SPARE))]
        raise HearthNetError("bad_request", "a text has too many tokens for the model; shorten it")

    def _embed_texts(self, texts: Sequence[str]) -> tuple[list[Any], int]:
        import numpy as np

        answer = self._server.handle_embeddings({"input": list(texts), "embd_normalize": -1})
        if "error" in answer:
            message = str(answer["error"].get("message", answer["error"]))
            if counted := _TOKENS.search(message):
                raise _TooLongError(int(counted[1]))
            raise HearthNetError("internal_error", f"llama.cpp: {message}")
        items = sorted(answer["data"], key=lambda item: item["index"])
        return [np.asarray(item["embedding"], np.float32) for item in items], int(
            answer["usage"]["prompt_tokens"]
        )


class _TooLongError(Exception):
    def __init__(self, tokens: int) -> None:
        super().__init__(f"{tokens} tokens")
        self.tokens = max(tokens, MAX_TOKENS + 1)


def _sized(params: CommonParams) -> None:
    params.embedding = True
    params.n_parallel = 1
    params.n_ctx = params.n_batch = params.n_ubatch = MAX_TOKENS


def _averaged(params: CommonParams) -> None:
    """Set the parameters for a file that does not name its pooling: average over the tokens."""
    _sized(params)
    params.pooling_type = llama_library().llama_pooling_type.LLAMA_POOLING_TYPE_MEAN


class Gguf:
    """A loaded file as a `Loadable`. One thread serves all calls, piece by piece in turn."""

    def __init__(self, name: str, engine: Engine) -> None:
        self.profile = Profile(model=name, dim=engine.dim, backend="llama.cpp", max_tokens=MAX_TOKENS)
        self._engine = engine
        self._pool = ThreadPoolExecutor(1, "gguf")
        self._waiting = 0

    async def load(self) -> None:
        """Do nothing: the file was loaded before, because only then the vectors' size is known."""

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return the vectors of `texts`, as `EmbeddingBackend.embed` does.

        Raises:
            HearthNetError: `capacity_exceeded` if too many calls wait.
        """
        if self._waiting >= _MOST_WAITING:
            raise HearthNetError(
                "capacity_exceeded", "too many wait for this model; try again", retry_after_ms=_RETRY_MS
            )
        self._waiting += 1
        loop = asyncio.get_running_loop()
        try:
            pieces = [
                await loop.run_in_executor(self._pool, self._engine.embed, texts[start : start + _PIECE])
                for start in range(0, len(texts), _PIECE)
            ]
        finally:
            self._waiting -= 1
        vectors = [vector for piece in pieces for vector in piece.vectors]
        cut = tuple(place * _PIECE + index for place, piece in enumerate(pieces) for index in piece.truncated)
        return Embedded(vectors, cut, sum(piece.tokens for piece in pieces))

    async def close(self) -> None:
        """As `EmbeddingBackend.close`."""
        self._pool.shutdown(wait=False)


class GgufBox(Box):
    """The place of the GGUF file named in the settings; its model has the file's name."""

    at_once: ClassVar[bool] = False

    def __init__(self, path: Path, threads: int) -> None:
        super().__init__()
        self._path = path
        self._threads = threads

    def seen(self) -> object:
        """As `Box.seen`."""
        return file_stamp(self._path)

    async def resolve(self) -> Loadable:
        """As `Box.resolve`."""
        file = await asyncio.to_thread(check_llama, self._path, "embed.model_file")
        return Gguf(file.stem, await asyncio.to_thread(Engine, file, self._threads))
