"""What the capabilities take, as Structs."""

from __future__ import annotations

from typing import Any

import msgspec

from hearthnet_rag.documents import PLAIN
from hearthnet_rag.search import Filter


class CorpusParams(msgspec.Struct, frozen=True):
    """Which corpus a call is about."""

    corpus: str


class QueryInput(msgspec.Struct, frozen=True):
    """What to look for, and how much of it to return."""

    query: str
    k: int = 5
    filter: Filter = Filter()
    include_text: bool = True


class IngestInput(msgspec.Struct, frozen=True):
    """Which stored document to add, and what is known of it beyond its text."""

    doc_cid: str
    title: str | None = None
    language: str | None = None
    media_type: str = PLAIN
    metadata: dict[str, Any] = {}
    update: bool = False


class DocumentsInput(msgspec.Struct, frozen=True):
    """How many documents to list."""

    limit: int = 500


class OneDocument(msgspec.Struct, frozen=True):
    """Which document of the corpus."""

    doc_cid: str


class Nothing(msgspec.Struct, frozen=True):
    """No params, no input."""
