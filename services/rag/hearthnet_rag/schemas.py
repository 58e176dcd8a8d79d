"""Params and inputs of the capabilities."""

from __future__ import annotations

from typing import Any

import msgspec

from hearthnet_rag.readers.documents import PLAIN
from hearthnet_rag.search.search import Filter


class CorpusParams(msgspec.Struct, frozen=True):
    """The corpus of a call."""

    corpus: str


class SearchedParams(CorpusParams, frozen=True):
    """The corpus of a search or a list; `copy_of` is the home whose copy is meant, if it is not empty."""

    copy_of: str = ""


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
    """Whether every member of the community may search the corpus, and keep a copy; None as it is now."""

    shared: bool
    copies: bool | None = None


class ManifestInput(msgspec.Struct, frozen=True):
    """The place of the first document of a page."""

    offset: int = 0


class DocumentRange(msgspec.Struct, frozen=True):
    """A part of the file of one document, in bytes."""

    doc_cid: str
    offset: int
    length: int


class MirrorInput(msgspec.Struct, frozen=True):
    """The home whose corpus is copied, and whether the copy ends."""

    home: str
    end: bool = False


class PersonInput(msgspec.Struct, frozen=True):
    """Another person of the home."""

    person: str


class RemovePersonInput(PersonInput, frozen=True):
    """A removed person of the home; whether private corpora stay, and shared ones stay shared."""

    keep_private: bool = False
    keep_shared: bool = False


class DocumentsInput(msgspec.Struct, frozen=True):
    """The largest number of documents to list."""

    limit: int = 500


class OneDocument(msgspec.Struct, frozen=True):
    """One document of the corpus."""

    doc_cid: str
