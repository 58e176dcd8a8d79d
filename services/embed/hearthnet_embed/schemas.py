"""Params and input of `embed.text` (contracts/embed.text@1.0.json)."""

from __future__ import annotations

import msgspec


class EmbedParams(msgspec.Struct, frozen=True):
    """The model's name or alias; None selects the first one."""

    model: str | None = None


class EmbedInput(msgspec.Struct, frozen=True):
    """The texts, and whether their vectors are scaled to length one."""

    texts: list[str]
    normalize: bool = True
