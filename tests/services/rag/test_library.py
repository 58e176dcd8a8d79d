"""The library: what becomes of a document and what is known of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hearthnet.canonical import content_hash
from hearthnet.errors import HearthNetError
from hearthnet.ids import new_ulid
from hearthnet_rag import entries as entries_module
from hearthnet_rag.database import FILE
from hearthnet_rag.entries import METADATA_BYTES, entry_of
from hearthnet_rag.index import Entry
from hearthnet_rag.journal import Record
from hearthnet_rag.library import Library
from hearthnet_rag.readers.pool import Readers
from hearthnet_rag.search import ANY

TEXT = b"""+++
title = "Soup"
date = 2025-06-07
language = "en"
sources = ["The cook: https://example.org/"]
+++
# Soup

Boil the soup.
"""


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    opened = Library(tmp_path)
    yield opened
    opened.close()


def record(data: bytes, media_type: str = "text/markdown", **fields: Any) -> Record:
    return Record("home", content_hash(data), new_ulid(), media_type, **fields)


def entry(asked: Record, data: bytes) -> Entry:
    """Text is read without a process of its own."""
    return entry_of(Readers(), asked, data, lambda stage, current, total: None)


@pytest.mark.req("RAG-3")
def test_what_the_document_says_of_itself() -> None:
    made = entry(record(TEXT), TEXT)
    assert (made.document.title, made.document.language, made.year) == ("Soup", "en", 2025)
    assert made.metadata == {
        "path": None,
        "date": "2025-06-07",
        "sources": ["The cook: https://example.org/"],
    }


@pytest.mark.req("RAG-3")
def test_what_the_caller_says_goes_first() -> None:
    metadata = {"year": 1999, "date": "June", "sources": ["me"], "author": "Ada", "path": "C:\\docs\\soup.md"}
    made = entry(record(TEXT, title="Stew", language="de", metadata=metadata), TEXT)
    assert (made.document.title, made.document.language, made.year) == ("Stew", "de", 1999)
    assert made.metadata == {
        "author": "Ada",
        "year": 1999,
        "path": "soup.md",
        "date": "June",
        "sources": ["me"],
    }


def test_where_it_comes_from_is_a_source_if_it_names_none() -> None:
    made = entry(record(b"soup", metadata={"source": "grandmother"}), b"soup")
    assert made.metadata["sources"] == ["grandmother"]


@pytest.mark.req("RAG-5")
def test_too_much_is_refused(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HearthNetError, match="metadata is longer") as caught:
        library.ingest(record(TEXT, metadata={"note": "x" * METADATA_BYTES}), TEXT)
    assert caught.value.details == {"path": "/input/metadata", "limit": METADATA_BYTES}
    monkeypatch.setattr(entries_module, "LARGEST_BYTES", 10)
    with pytest.raises(HearthNetError, match=r"a\.md has \d+ bytes, more than 10; split it") as caught:
        library.ingest(record(TEXT, metadata={"path": "a.md"}), TEXT)
    assert caught.value.code == "bad_request"
    assert library.lost() == []


@pytest.mark.req("RAG-10")
def test_after_damage_the_journal_names_what_is_lost(tmp_path: Path) -> None:
    library = Library(tmp_path)
    asked = [record(TEXT), record(b"bread", "text/plain", title="Bread")]
    made = [library.ingest(asked[0], TEXT).made, library.ingest(asked[1], b"bread").made]
    assert library.lost() == []
    library.close()
    (tmp_path / FILE).write_bytes(b"broken" * 1000)
    library = Library(tmp_path)
    assert library.moved_aside is not None
    assert library.lost() == asked
    assert [library.restore(asked[0], TEXT), library.restore(asked[1], b"bread")] == made
    assert library.lost() == []
    assert library.search("home", "bread", 1, ANY)[0].metadata["doc_title"] == "Bread"
    library.close()
