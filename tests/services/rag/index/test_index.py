"""The index: one transaction a document, duplicates, removal, figures, and files that are damaged."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_rag.index import chunking
from hearthnet_rag.index.database import FILE, VERSION
from hearthnet_rag.index.index import CorpusInfo, Index, IndexEntry, Ingested
from hearthnet_rag.readers.documents import Document
from hearthnet_rag.search.search import search
from hearthnet_rag.text.text_analysis import Analyser
from tests.helpers.waiting import wait_for_sync
from tests.services.rag.conftest import MakeEntry

LONG = "# Barrels\n\n" + "Keep the lid on the barrel so that nothing falls in.\n\n" * 300


def raw(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(folder / FILE)


@pytest.mark.req("RAG-4")
def test_a_repetition_returns_the_first_outcome(index: Index, entry: MakeEntry) -> None:
    first = index.add("home", entry(LONG))
    assert first.chunks > 1
    assert first.tokens >= len(LONG) // 4
    assert index.add("home", entry(LONG)) == first == index.find("home", first.doc_cid)
    assert index.corpora()[0].docs == 1


@pytest.mark.req("RAG-4")
def test_the_same_document_may_be_in_two_corpora(index: Index, entry: MakeEntry) -> None:
    first, second = index.add("home", entry("soup")), index.add("work", entry("soup"))
    assert first.doc_cid == second.doc_cid
    assert first.event_id != second.event_id
    assert index.find("elsewhere", first.doc_cid) is None


@pytest.mark.req("RAG-4")
def test_of_two_at_the_same_time_one_is_added(index: Index, entry: MakeEntry) -> None:
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda _: index.add("home", entry(LONG)), range(8)))
    assert len(set(outcomes)) == 1
    assert index.corpora()[0].docs == 1


@pytest.mark.req("RAG-7")
def test_corpora_in_figures(index: Index, entry: MakeEntry) -> None:
    assert index.corpora() == []
    long = index.add("work", entry(LONG)).chunks
    for number in range(3):
        index.add("home", entry(f"+++\nlanguage = '{'en' if number else 'de'}'\n+++\nText {number}, größer"))
    assert index.corpora() == [
        CorpusInfo(name="home", docs=3, chunks=3, size_bytes=3 * 16, language_majority="en"),
        CorpusInfo(name="work", docs=1, chunks=long, size_bytes=len(LONG), language_majority=None),
    ]
    assert long > 1


def test_what_is_removed_is_found_no_more(index: Index, entry: MakeEntry) -> None:
    gone, kept = index.add("home", entry(LONG)), index.add("home", entry("# Barrels\n\nkeep"))
    index.remove("home", [gone.doc_cid, gone.doc_cid, "blake3:none"])
    index.remove("nowhere", [kept.doc_cid])
    assert index.documents("home") == [kept.doc_cid]
    assert [hit.metadata["doc_cid"] for hit in search(index, "home", "barrels", 5)] == [kept.doc_cid]


@pytest.mark.req("RAG-6")
def test_a_failure_in_the_middle_leaves_nothing(index: Index, entry: MakeEntry, tmp_path: Path) -> None:
    with raw(tmp_path / "rag") as connection:
        connection.execute(
            "CREATE TRIGGER stop BEFORE INSERT ON chunks WHEN new.number = 2 "
            "BEGIN SELECT raise(ABORT, 'no'); END"
        )
    connection.close()
    with pytest.raises(HearthNetError, match="no; see that this user may write there") as caught:
        index.add("home", entry(LONG))
    assert caught.value.code == "internal_error"
    assert index.corpora() == []
    assert index.add("home", entry("short")).chunks == 1


@pytest.mark.req("RAG-6")
def test_a_full_disk_is_said_and_leaves_nothing(index: Index, entry: MakeEntry) -> None:
    index._writer.execute("PRAGMA max_page_count = 20")
    with pytest.raises(HearthNetError, match="the disk is full") as caught:
        index.add("home", entry(LONG))
    assert caught.value.code == "capacity_exceeded"
    assert index.corpora() == []


@pytest.mark.req("RAG-6")
@pytest.mark.parametrize("table", ["chunks", "documents"])
def test_closing_undoes_what_is_being_written(tmp_path: Path, entry: MakeEntry, table: str) -> None:
    begun, closing = threading.Event(), threading.Event()

    def pause() -> None:
        begun.set()
        assert closing.wait(60)

    index = Index(tmp_path)
    index._writer.create_function("pause", 0, pause)
    index._writer.execute(f"CREATE TEMP TRIGGER slow BEFORE INSERT ON {table} BEGIN SELECT pause(); END")
    with ThreadPoolExecutor(2) as pool:
        outcome = pool.submit(index.add, "home", entry(LONG))
        assert begun.wait(60)
        closed = pool.submit(index.close)
        wait_for_sync(index._closing.is_set)
        closing.set()
        closed.result(60)
        with pytest.raises(HearthNetError, match="is stopping") as caught:
            outcome.result(60)
    assert caught.value.code == "partition"
    assert [file.name for file in tmp_path.iterdir()] == [FILE]
    with contextlib.closing(Index(tmp_path)) as reopened:
        assert reopened.corpora() == []


def test_closing_stops_the_reading_of_a_document(
    tmp_path: Path, entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, cut = Index(tmp_path), list[chunking.Passage]()
    row = chunking._row

    def closes(document: Document, passage: chunking.Passage, analyser: Analyser) -> chunking.PassageRow:
        index.close()
        cut.append(passage)
        return row(document, passage, analyser)

    monkeypatch.setattr(chunking, "_row", closes)
    with pytest.raises(HearthNetError, match="is stopping") as caught:
        index.add("home", entry(LONG))
    assert caught.value.code == "partition"
    assert len(cut) == 1, "of many passages"


def test_a_closed_index_takes_nothing(tmp_path: Path, entry: MakeEntry) -> None:
    index = Index(tmp_path)
    index.close()
    with pytest.raises(HearthNetError, match="is stopping"):
        index.add("home", entry("# Soup\n\nBoil it.\n"))
    with pytest.raises(HearthNetError, match="is stopping"):
        index.remove("home", [])


def test_readers_may_finish_while_it_closes(tmp_path: Path, entry: MakeEntry) -> None:
    index = Index(tmp_path)
    with index.reading() as connection:
        index.close()
        assert connection.execute("SELECT count(*) FROM documents").fetchone()[0] == 0
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        connection.execute("SELECT 1")


def test_readers_do_not_wait_for_the_writer(index: Index, entry: MakeEntry) -> None:
    index.add("home", entry("before"))
    with index.writing() as writer:
        writer.execute("UPDATE documents SET chunks = 99")
        assert index.corpora()[0].chunks == 1
    assert index.corpora()[0].chunks == 99


def overwrite(file: Path) -> None:
    file.write_bytes(b"this is no database, but somebody's notes\n" * 100)


def tear(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[4096:] = bytes(byte ^ 0xFF for byte in content[4096:])
    file.write_bytes(content)


def outdate(file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()


@pytest.mark.req("RAG-10")
@pytest.mark.parametrize("damage", [overwrite, tear, outdate])
def test_a_damaged_file_is_moved_aside_and_kept(tmp_path: Path, entry: MakeEntry, damage: object) -> None:
    with contextlib.closing(Index(tmp_path)) as index:
        index.add("home", entry(LONG))
    assert callable(damage)
    damage(tmp_path / FILE)
    content = (tmp_path / FILE).read_bytes()
    with contextlib.closing(Index(tmp_path)) as index:
        assert index.moved_aside is not None
        assert index.moved_aside.read_bytes() == content
        assert index.corpora() == []
        assert index.add("home", entry(LONG)).chunks > 1
    with contextlib.closing(Index(tmp_path)) as index:
        assert index.moved_aside is None
        assert index.corpora()[0].docs == 1


@pytest.mark.req("RAG-10")
def test_damage_while_it_is_open_is_said_in_one_line(tmp_path: Path, entry: MakeEntry) -> None:
    with contextlib.closing(Index(tmp_path)) as index:
        index.add("home", entry(LONG))
        index._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        tear(tmp_path / FILE)
        with pytest.raises(HearthNetError, match="is damaged; stop and start the node") as caught:
            index.corpora()
    assert caught.value.code == "internal_error"
    assert "\n" not in caught.value.message


def test_a_folder_that_cannot_be_used_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "rag").write_text("a file where the folder should be")
    (tmp_path / "other" / FILE).mkdir(parents=True)
    for folder, why in (("rag", "File exists"), ("other", "unable to open database file")):
        with pytest.raises(HearthNetError, match=f"{why}.*; see that this user may write there") as caught:
            Index(tmp_path / folder)
        assert caught.value.code == "internal_error"
        assert caught.value.message.startswith(f"{tmp_path / folder / FILE}: ")
        assert "\n" not in caught.value.message


def test_the_outcome_of_nothing_but_headings(index: Index, entry: MakeEntry) -> None:
    made = index.add("home", entry("# Only a heading"))
    assert made == Ingested(made.doc_cid, 1, 5, made.event_id)


@pytest.mark.req("RAG-32")
def test_a_newer_version_takes_the_place_of_the_older_one(index: Index, entry: MakeEntry) -> None:
    old = msgspec.structs.replace(entry("# Soup\n\nBoil the turnips.\n"), name="cook/soup.md")
    other = msgspec.structs.replace(entry("# Soup\n\nBoil the leeks.\n"), name="other/soup.md")
    new = msgspec.structs.replace(entry("# Soup\n\nBoil the carrots.\n"), name="cook/soup.md")
    index.add("home", old)
    index.add("home", other)

    def others(corpus: str, entry: IndexEntry, name: str | None = "cook/soup.md") -> list[str]:
        return index.others(corpus, entry.doc_cid, name, entry.document.title)

    assert others("home", new) == [old.doc_cid]
    assert others("home", old) == others("elsewhere", new) == []
    assert others("home", new, None) == sorted([old.doc_cid, other.doc_cid])
    index.add("home", new, [old.doc_cid])
    assert index.documents("home") == sorted([other.doc_cid, new.doc_cid])
    assert not [hit for hit in search(index, "home", "turnips", 5) if "turnips" in hit.text]
    assert index.remove("home", [other.doc_cid, old.doc_cid]) == 1


@pytest.mark.req("RAG-31")
def test_passages_know_the_page_they_begin_on(index: Index, entry: MakeEntry) -> None:
    made = entry("".join(f"Page {number} tells of barrel{number}. " * 200 + "\n\n" for number in range(1, 4)))
    starts = (0, made.document.body.index("Page 2"), made.document.body.index("Page 3"))
    paged = msgspec.structs.replace(made, document=dataclasses.replace(made.document, pages=starts))
    index.add("home", paged)
    with index.reading() as connection:
        rows = connection.execute("SELECT page, text FROM chunks ORDER BY number").fetchall()
    assert {row["page"] for row in rows} == {1, 2, 3}
    assert rows[0]["page"] == 1
    assert rows[-1]["page"] == 3
    assert {hit.metadata["page"] for hit in search(index, "home", "barrel2", 1)} == {2}


@pytest.mark.req("RAG-40")
def test_space_of_what_is_replaced_and_removed_is_given_back(tmp_path: Path, entry: MakeEntry) -> None:
    """Both at once: what is removed leaves more room than what is spared for the next document."""
    with contextlib.closing(Index(tmp_path)) as index:
        words = [f"word{number}" for number in range(3000)]

        def version(number: int) -> IndexEntry:
            return entry(
                f"# Book {number}\n\n"
                + "\n\n".join(" ".join(words[at :: 50 + number]) for at in range(50)) * 30
            )

        def size() -> int:
            while index.reclaim():
                pass
            with index._writing:
                index._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return (tmp_path / "index.db").stat().st_size

        before = version(0)
        index.add("book", before)
        fresh = size()
        for number in range(1, 5):
            after = version(number)
            index.add("book", after, [before.doc_cid])
            before = after
        spare = 1_100_000
        assert size() < fresh * 1.2 + spare
        assert [corpus.docs for corpus in index.corpora()] == [1]
        index.remove("book", [before.doc_cid])
        assert size() < spare * 1.5
