"""What `embed.text` is asked (contracts/embed.text@1.0.json)."""

from __future__ import annotations

import msgspec


class EmbedParams(msgspec.Struct, frozen=True):
    """Which model, by its name or an alias; None for the first one."""

    model: str | None = None


class EmbedInput(msgspec.Struct, frozen=True):
    """The texts, and whether their vectors shall have length one."""

    texts: list[str]
    normalize: bool = True
