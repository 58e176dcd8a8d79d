"""Tokens of a text whose backend does not count (capabilities.md, llm.chat: characters / 3.5)."""

from __future__ import annotations

import math


def tokens(characters: int) -> int:
    """How many tokens so many characters of Latin script probably are."""
    return math.ceil(characters / 3.5)
