"""An empty index, and documents to put into it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hearthnet.core.canonical_json import content_hash
from hearthnet.core.ids import new_ulid
from hearthnet_rag import library
from hearthnet_rag.index.index import Index, IndexEntry
from hearthnet_rag.ingest.document_import import starter_files
from hearthnet_rag.mirror import original_offers
from hearthnet_rag.readers import read_document


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """One document as the starter corpus, and a home that counts as absent soon after the start."""
    first = starter_files()[:1]
    monkeypatch.setattr(library, "starter_files", lambda: first)
    monkeypatch.setattr(original_offers, "SETTLE_SECONDS", 0.5)


MakeEntry = Callable[..., IndexEntry]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """An empty index."""
    with contextlib.closing(Index(tmp_path / "rag")) as opened:
        yield opened


@pytest.fixture
def entry() -> MakeEntry:
    """`entry(text, year=…, **metadata)`: a Markdown document as the index takes it."""

    def make(text: str, year: int | None = None, **metadata: object) -> IndexEntry:
        data = text.encode()
        return IndexEntry(content_hash(data), read_document(data), new_ulid(), year, metadata)

    return make
