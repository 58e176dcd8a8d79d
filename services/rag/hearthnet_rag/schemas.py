"""Params and inputs of the capabilities."""

from __future__ import annotations

from typing import Any

import msgspec

from hearthnet_rag.readers.documents import PLAIN
from hearthnet_rag.search.search import Filter


class CorpusParams(msgspec.Struct, frozen=True):
    """The corpus of a call."""

    corpus: str


class QueryInput(msgspec.Struct, frozen=True):
    """A search: the query, the number of passages, a filter, and whether to return texts."""

    query: str
    k: int = 5
    filter: Filter = Filter()
    include_text: bool = True


class IngestInput(msgspec.Struct, frozen=True):
    """A stored document to add, with metadata beyond its text."""

    doc_cid: str
    title: str | None = None
    language: str | None = None
    media_type: str = PLAIN
    metadata: dict[str, Any] = {}
    update: bool = False


class ShareInput(msgspec.Struct, frozen=True):
    """Whether every member of the community may search the corpus."""

    shared: bool


class DocumentsInput(msgspec.Struct, frozen=True):
    """The largest number of documents to list."""

    limit: int = 500


class OneDocument(msgspec.Struct, frozen=True):
    """One document of the corpus."""

    doc_cid: str
