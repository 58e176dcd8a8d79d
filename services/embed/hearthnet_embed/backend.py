"""The interface of all embedding models; one test suite runs against each implementation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec


class Profile(msgspec.Struct, frozen=True):
    """Names and abilities of a model; `max_tokens` is None if its server does not report it."""

    model: str
    dim: int
    backend: str
    aliases: tuple[str, ...] = ()
    max_tokens: int | None = None
    languages: tuple[str, ...] = ()
    requires_internet: bool = False

    def params(self, max_texts: int) -> dict[str, Any]:
        """Return the params of the model's offer."""
        lists = {"aliases": list(self.aliases), "languages": list(self.languages)}
        return {**msgspec.structs.asdict(self), **lists, "max_texts": max_texts}


class Embedded(msgspec.Struct, frozen=True):
    """Result of a model: one vector for each text, in their order.

    `truncated` has the indexes of texts that were cut; `tokens` counts the tokens read, and is 0 if the model
    does not report it.
    """

    vectors: Sequence[Sequence[float]]
    truncated: tuple[int, ...] = ()
    tokens: int = 0


class EmbeddingBackend(Protocol):
    """One embedding model."""

    @property
    def profile(self) -> Profile:
        """Names and abilities of the model."""
        ...

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return the vectors of 1 to 256 texts.

        Raises:
            HearthNetError: if the model cannot embed them.
        """
        ...

    async def close(self) -> None:
        """Release all resources."""
        ...
