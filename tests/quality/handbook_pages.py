"""The pages of the handbook as documents of a corpus, read as any page of HTML is."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from hearthnet.core.canonical_json import content_hash
from hearthnet_rag.index.index import Index, IndexEntry
from hearthnet_rag.readers import read_document
from tests.quality.handbook import pages


def corpus_of(language: str) -> str:
    """The corpus that `ingest` fills."""
    return f"handbook-{language}"


def ingest(index: Index, language: str) -> int:
    """Adds every page of the book in `language` to its corpus; how many passages that made."""
    return sum(_add(index, language, page) for page in pages(language))


def _add(index: Index, language: str, page: Path) -> int:
    data = page.read_bytes()
    document = dataclasses.replace(read_document(data, "text/html", page.name), language=language)
    entry = IndexEntry(content_hash(data), document, "01", 2022, {"path": page.name}, page.name)
    return index.add(corpus_of(language), entry).chunks
