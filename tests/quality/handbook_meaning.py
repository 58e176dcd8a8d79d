"""Vectors of the handbook's passages by the model that comes with `embed`, where it is installed."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hearthnet.core.errors import HearthNetError
from hearthnet_rag.index.index import Index
from hearthnet_rag.index.vectors import QueryEmbedding, pending, store

if TYPE_CHECKING:
    from hearthnet_embed.minilm.model import Model

NAME: Final = "all-MiniLM-L6-v2"
LANGUAGES: Final = ("en",)
"""Those that `embed` vouches for with it."""
_MAX_TOKENS: Final = 256
_TEXTS: Final = 16


def model() -> Model | None:
    """The model, loaded; None where it is not installed."""
    try:
        from hearthnet_embed.minilm.files import checked_files
        from hearthnet_embed.minilm.model import Model

        with tempfile.TemporaryDirectory() as folder:
            return Model(checked_files(Path(folder)), 2)
    except (HearthNetError, ImportError):
        return None


def make(index: Index, read: Model, language: str) -> None:
    """Gives every passage in `language` its vectors."""
    while True:
        with index.reading() as connection:
            waiting = pending(connection, NAME, [language], _MAX_TOKENS, _TEXTS)
        if not waiting:
            return
        made = [(passage, _vectors(read, passage.windows)) for passage in waiting]
        with index.writing() as connection:
            store(connection, NAME, made)


def asked(read: Model, query: str) -> QueryEmbedding:
    """The vector of a query."""
    return QueryEmbedding(NAME, [float(number) for number in _vectors(read, [query])[0]])


def _vectors(read: Model, texts: Sequence[str]) -> Sequence[Any]:
    return list(read.vectors([one.ids for one in read.tokens(texts)]))
