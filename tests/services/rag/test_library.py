"""The library: what becomes of a document and what is known of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hearthnet.core.canonical_json import content_hash
from hearthnet.core.errors import HearthNetError
from hearthnet.core.ids import new_ulid
from hearthnet_rag.index.database import FILE
from hearthnet_rag.index.index import IndexEntry
from hearthnet_rag.index.journal import Journal, Record
from hearthnet_rag.index.sharing import Sharing
from hearthnet_rag.ingest import document_import
from hearthnet_rag.ingest.document_import import METADATA_BYTES, entry_of
from hearthnet_rag.library import Library
from hearthnet_rag.readers.pool import ReaderPool
from hearthnet_rag.search.search import search

TEXT = b"""+++
title = "Soup"
date = 2025-06-07
language = "en"
sources = ["The cook: https://example.org/"]
+++
# Soup

Boil the soup.
"""


OLD_NEW_GONE = ((b"# Old soup", "soup.md"), (b"# New soup", "soup.md"), (b"# Bread", "bread.md"))


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    opened = Library(tmp_path)
    yield opened
    opened.close()


def record(data: bytes, media_type: str = "text/markdown", **fields: Any) -> Record:
    return Record("home", content_hash(data), new_ulid(), media_type, **fields)


def entry(asked: Record, data: bytes) -> IndexEntry:
    """The document as it is read for the index."""
    readers = ReaderPool()
    try:
        return entry_of(readers, asked, data, lambda stage, current, total: None)
    finally:
        readers.close()


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
    made = entry(record(TEXT, metadata={"source": "grandmother"}), TEXT)
    assert made.metadata["sources"] == ["The cook: https://example.org/"]


@pytest.mark.req("RAG-5")
def test_too_much_is_refused(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HearthNetError, match="metadata is longer") as caught:
        library.ingest(record(TEXT, metadata={"note": "x" * METADATA_BYTES}), TEXT)
    assert caught.value.details == {"path": "/input/metadata", "limit": METADATA_BYTES}
    monkeypatch.setattr(document_import, "LARGEST_BYTES", 10)
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
    assert library.index.moved_aside is not None
    assert library.lost() == asked
    assert [library.restore(asked[0], TEXT), library.restore(asked[1], b"bread")] == made
    assert library.lost() == []
    assert search(library.index, "home", "bread", 1)[0].metadata["doc_title"] == "Bread"
    library.close()


@pytest.mark.req("RAG-33")
def test_what_a_crash_cut_off_is_made_up_for(tmp_path: Path) -> None:
    old, new, gone = (record(text, metadata={"path": path}) for text, path in OLD_NEW_GONE)
    library = Library(tmp_path)
    for asked, (text, _) in ((old, OLD_NEW_GONE[0]), (gone, OLD_NEW_GONE[2])):
        library.ingest(asked, text)
    library.close()
    journal = Journal(tmp_path)  # as far as a process came that was killed before it changed the index
    journal.append(msgspec.structs.replace(new, replaces=[old.doc_cid]))
    journal.append(Record("home", gone.doc_cid, "", "", removed=True))
    library = Library(tmp_path)
    [lost] = library.lost()
    assert lost.key == new.key
    assert library.clear() == 1
    assert library.index.find(*old.key)  # for as long as the newer version is not there
    assert not library.index.find(*gone.key)
    library.restore(lost, OLD_NEW_GONE[1][0])
    assert library.clear() == 1
    assert [one.doc_cid for one in library.index.listed("home", 10)] == [new.doc_cid]
    assert (library.clear(), library.lost()) == (0, [])
    library.close()


@pytest.mark.req("RAG-32")
def test_two_updates_at_once_leave_one_version(tmp_path: Path) -> None:
    library = Library(tmp_path)
    texts = [b"# Soup\n\nBoil it %d times.\n" % number for number in range(6)]
    with ThreadPoolExecutor(6) as threads:
        made = [
            threads.submit(library.ingest, record(text, metadata={"path": "soup.md"}), text, update=True)
            for text in texts
        ]
    replaced = [cid for one in made for cid in one.result().replaced]
    assert len(replaced) == len(set(replaced)) == 5
    assert len(library.index.listed("home", 10)) == 1
    library.close()


@pytest.mark.req("ATTACK-45")
def test_what_ends_the_service_while_it_is_cut_is_not_restored(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hearthnet_rag.index.index.rows_of", die)
    with pytest.raises(KeyboardInterrupt):
        library.ingest(record(TEXT), TEXT)
    assert library.lost() == []


@pytest.mark.req("ATTACK-46")
def test_what_is_no_longer_allowed_is_not_done(library: Library) -> None:
    def refuse() -> None:
        raise HearthNetError("not_found", "unshared")

    with pytest.raises(HearthNetError, match="unshared"):
        library.ingest(record(TEXT), TEXT, check=refuse)
    assert library.lost() == []
    library.ingest(record(TEXT), TEXT)
    with pytest.raises(HearthNetError, match="unshared"):
        library.remove("home", content_hash(TEXT), refuse)
    assert library.index.documents("home") == [content_hash(TEXT)]


@pytest.mark.req("ATTACK-46")
@pytest.mark.parametrize("data", [b"{", b"[]", b'{"home": 1}', b'{"\xff": true}', b"\xff"])
def test_answers_that_cannot_be_read_are_private(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "sharing.json").write_bytes(data)
    library = Library(tmp_path)
    assert not library.sharing.is_shared("home")
    library.sharing.decide("home", shared=True)
    assert Sharing(tmp_path).is_shared("home")
    library.close()


@pytest.mark.req("RAG-54")
def test_a_document_of_an_older_home_with_much_front_matter_is_restored(library: Library) -> None:
    data = b"+++\n" + b"# a long remark\n" * 1_200 + b"+++\n# Soup\n\nBoil the soup.\n"
    with pytest.raises(HearthNetError, match="front matter"):
        library.ingest(record(data), data)
    library.restore(record(data), data)
    assert library.index.documents("home") == [content_hash(data)]


@pytest.mark.req("RAG-54")
def test_answers_end_with_their_corpora_also_where_the_disk_takes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "index").mkdir()
    sharing = Sharing(tmp_path / "index")
    sharing.decide("club", shared=True)
    sharing.decide("home", shared=False)
    shutil.rmtree(tmp_path / "index")
    sharing.keep(["home"])
    assert not sharing.is_shared("club")
    assert "is not up to date" in caplog.text
    with pytest.raises(HearthNetError):
        sharing.decide("club", shared=True)
    assert not sharing.is_shared("club")
