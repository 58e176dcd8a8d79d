"""The port that every model of vectors stands behind; one suite of tests runs against each implementation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec


class Profile(msgspec.Struct, frozen=True):
    """What a model is called and can do; `max_tokens` None where its server does not tell."""

    model: str
    dim: int
    backend: str
    aliases: tuple[str, ...] = ()
    max_tokens: int | None = None
    languages: tuple[str, ...] = ()
    requires_internet: bool = False

    def params(self, max_texts: int) -> dict[str, Any]:
        """The params of its offer."""
        return {
            "model": self.model,
            "aliases": list(self.aliases),
            "dim": self.dim,
            "max_tokens": self.max_tokens,
            "max_texts": max_texts,
            "languages": list(self.languages),
            "backend": self.backend,
            "requires_internet": self.requires_internet,
        }


class Embedded(msgspec.Struct, frozen=True):
    """Vectors in the order of their texts, as the model made them; which texts were cut; tokens that were
    read, 0 where nobody counts them.
    """

    vectors: Sequence[Sequence[float]]
    truncated: tuple[int, ...] = ()
    tokens: int = 0


class Backend(Protocol):
    """One model."""

    @property
    def profile(self) -> Profile:
        """What the model is and can do."""
        ...

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """The vectors of 1 to 256 texts; raises `HearthNetError`."""
        ...

    async def close(self) -> None:
        """Lets go of everything."""
        ...
