"""The index: adds documents, each in one transaction, and lists corpora and contents.

Methods block and may be called from any thread; one thread writes at a time, and readers never wait for it.
"""

from __future__ import annotations

import contextlib
import json
import queue
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from hearthnet_rag.index.chunking import PassageRow, rows_of
from hearthnet_rag.index.database import (
    FILE,
    Space,
    as_wire_error,
    connect,
    give_back,
    make_passages_table,
    open_database,
    passages_table,
)
from hearthnet_rag.index.vectors import PendingVectors, SignBitIndex, store
from hearthnet_rag.readers.documents import Document, Pages, stopped
from hearthnet_rag.text.document_frequencies import Vocabulary, forget, learn
from hearthnet_rag.text.text_analysis import EMPTY_STATS, Known


class Ingested(msgspec.Struct, frozen=True):
    """Result of an ingestion: number of passages, estimated tokens, and its permanent id."""

    doc_cid: str
    chunks: int
    tokens: int
    event_id: str


class CorpusInfo(msgspec.Struct, frozen=True):
    """Figures of one corpus; `size_bytes` is that of its text.

    `language_majority` is None if no language is known.
    """

    name: str
    docs: int
    chunks: int
    size_bytes: int
    language_majority: str | None


class DocumentInfo(msgspec.Struct, frozen=True):
    """One document without its text; `size_bytes` is that of the text."""

    doc_cid: str
    title: str
    language: str | None
    year: int | None
    chunks: int
    size_bytes: int
    pages_without_text: list[Pages]


class IndexEntry(msgspec.Struct, frozen=True):
    """A document with its data in a corpus; `metadata` is shown with each passage.

    `name` is its source; newer versions of a document have the same name.
    """

    doc_cid: str
    document: Document
    event_id: str
    year: int | None = None
    metadata: dict[str, Any] = {}
    name: str | None = None


class Index:
    """The index of one folder; `moved_aside` is the new path of a damaged file, or None."""

    def __init__(self, folder: Path) -> None:
        self._writer, self.moved_aside = open_database(folder)
        self._file = folder / FILE
        self._writing = threading.Lock()
        self._readers: queue.LifoQueue[sqlite3.Connection] = queue.LifoQueue()
        self._closing = threading.Event()
        self._space = Space()
        self.signs = SignBitIndex()
        self.losses = 0
        """Grows when passages or vectors are removed, and not when they are only added."""

    def close(self) -> None:
        """Undo a write in progress and close; a running read may finish."""
        self._closing.set()
        with contextlib.suppress(queue.Empty):
            while True:
                self._readers.get_nowait().close()
        with self._writing:
            self._writer.close()

    def find(self, corpus: str, doc_cid: str) -> Ingested | None:
        """Return the result of an earlier ingestion of `doc_cid` into `corpus`, or None."""
        with self.reading() as connection:
            return _find(connection, corpus, doc_cid)

    def rows(self, corpus: str, document: Document) -> list[PassageRow]:
        """Return the passages of a document for `add`, which may take a while.

        Raises:
            HearthNetError: `partition` if the index is being closed.
        """
        with self._known(corpus) as known:
            return list(self._unless_closing(rows_of(document, known)))

    def add(
        self,
        corpus: str,
        entry: IndexEntry,
        replaces: Sequence[str] = (),
        rows: list[PassageRow] | None = None,
    ) -> Ingested:
        """Add a document to `corpus` and remove those it `replaces`, in one transaction.

        The corpus is created if necessary. A document that exists already stays unchanged. `rows` is what
        `rows` returned for it, if that was called before.

        Raises:
            HearthNetError: `capacity_exceeded` if the disk is full; `partition` if the index is being closed.
        """
        if rows is None:
            rows = self.rows(corpus, entry.document)
        with self._losing(replaces), self.writing() as connection:
            for doc_cid in replaces:
                self._remove(connection, corpus, doc_cid)
            earlier = _find(connection, corpus, entry.doc_cid)
            if earlier is not None:
                return earlier
            number = _corpus_for(connection, corpus)
            made = Ingested(entry.doc_cid, len(rows), sum(row.tokens for row in rows), entry.event_id)
            document = _insert_document(connection, number, entry, made)
            _insert_chunks(connection, number, document, self._unless_closing(rows))
            learn(connection, number, (row.stems for row in rows))
            return made

    def others(self, corpus: str, doc_cid: str, name: str | None, title: str | None) -> list[str]:
        """Return the CIDs of other documents by `name`, `title`, or the title of `doc_cid`.

        The first of these that is given decides.
        """
        column, value = ("title", title) if name is None else ("name", name)
        with self.reading() as connection:
            rows = connection.execute(
                f"""
                SELECT doc_cid FROM documents JOIN corpora ON corpora.id = corpus
                WHERE corpora.name = ?1 AND doc_cid <> ?3 AND documents.{column} = coalesce(?2, (
                    SELECT documents.{column} FROM documents JOIN corpora ON corpora.id = corpus
                    WHERE corpora.name = ?1 AND doc_cid = ?3
                )) ORDER BY doc_cid
                """,
                (corpus, value, doc_cid),
            )
            return [row["doc_cid"] for row in rows]

    def remove(self, corpus: str, doc_cids: Sequence[str]) -> int:
        """Remove documents of `corpus` and return the number of their passages.

        A missing document counts as none.
        """
        with self._losing(doc_cids), self.writing() as connection:
            return sum(self._remove(connection, corpus, doc_cid) for doc_cid in doc_cids)

    def rename(self, corpus: str, name: str) -> None:
        """Give a corpus another name, which no corpus with documents has."""
        with self.writing() as connection:
            # A corpus without documents keeps its row, which makes room here.
            for new, old in (("", name), (name, corpus), (corpus, "")):
                connection.execute("UPDATE corpora SET name = ? WHERE name = ?", (new, old))

    def reclaim(self) -> bool:
        """Release some disk space of removed documents; return whether more may be left."""
        with self.writing() as connection:
            merging = self._space.merge(connection)
        with self._writing:
            if self._closing.is_set():
                raise stopped()
            try:
                return give_back(self._writer) or merging
            except sqlite3.DatabaseError as error:
                raise as_wire_error(error, self._file) from error

    def _remove(self, connection: sqlite3.Connection, corpus: str, doc_cid: str) -> int:
        number, passages = _remove(connection, corpus, doc_cid)
        self._space.lost(number, passages)
        return passages

    def keep_vectors(self, model: str, made: Sequence[tuple[PendingVectors, Any]]) -> None:
        """Store the vectors of passages in one transaction; see `hearthnet_rag.index.vectors.store`."""
        with self.writing() as connection:
            replaced = store(connection, model, made)
        self.losses += replaced

    @contextlib.contextmanager
    def _losing(self, gone: Sequence[str]) -> Iterator[None]:
        yield
        self.losses += len(gone)

    def documents(self, corpus: str) -> list[str]:
        """Return the CIDs of the documents in `corpus`."""
        with self.reading() as connection:
            rows = connection.execute(
                """
                SELECT doc_cid FROM documents JOIN corpora ON corpora.id = corpus
                WHERE corpora.name = ? ORDER BY doc_cid
                """,
                (corpus,),
            )
            return [row["doc_cid"] for row in rows]

    def corpora(self) -> list[CorpusInfo]:
        """Return the corpora by name."""
        with self.reading() as connection:
            rows = connection.execute(
                """
                SELECT corpora.name AS name, count(*) AS docs, sum(chunks) AS chunks,
                    sum(size_bytes) AS size_bytes,
                    (SELECT language FROM documents AS d WHERE d.corpus = corpora.id AND language IS NOT NULL
                     GROUP BY language ORDER BY count(*) DESC, language LIMIT 1) AS language_majority
                FROM corpora JOIN documents ON corpus = corpora.id GROUP BY corpora.id ORDER BY corpora.name
                """
            )
            return [CorpusInfo(**dict(row)) for row in rows]

    def listed(self, corpus: str, limit: int) -> list[DocumentInfo]:
        """Return up to `limit` documents of `corpus`, by title."""
        with self.reading() as connection:
            rows = connection.execute(
                """
                SELECT doc_cid, title, language, year, chunks, size_bytes, pages_without_text
                FROM documents JOIN corpora ON corpora.id = corpus
                WHERE corpora.name = ? ORDER BY title, doc_cid LIMIT ?
                """,
                (corpus, limit),
            )
            return [
                DocumentInfo(**{**dict(row), "pages_without_text": _pages.decode(row["pages_without_text"])})
                for row in rows
            ]

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection that sees one state of the index during the block, for reading only."""
        try:
            connection = self._readers.get_nowait()
        except queue.Empty:
            connection = connect(self._file)
        try:
            connection.execute("BEGIN")
            yield connection
        except sqlite3.DatabaseError as error:
            raise as_wire_error(error, self._file) from error
        finally:
            self._return(connection)

    @contextlib.contextmanager
    def _known(self, corpus: str) -> Iterator[Known]:
        with self.reading() as connection:
            row = connection.execute("SELECT id FROM corpora WHERE name = ?", (corpus,)).fetchone()
            yield EMPTY_STATS if row is None else Vocabulary(connection, row["id"])

    def _return(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if self._closing.is_set():
            connection.close()
        else:
            self._readers.put(connection)

    def _unless_closing(self, rows: Iterable[PassageRow]) -> Iterator[PassageRow]:
        for row in rows:
            if self._closing.is_set():
                raise stopped()
            yield row

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield the writing connection, in a transaction during the block.

        Raises:
            HearthNetError: `partition` if the index is closed.
        """
        with self._writing:
            if self._closing.is_set():
                raise stopped()
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                yield self._writer
                self._writer.execute("COMMIT")
            except sqlite3.DatabaseError as error:
                raise as_wire_error(error, self._file) from error
            finally:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")


_pages: Final = msgspec.json.Decoder(list[Pages])


def _find(connection: sqlite3.Connection, corpus: str, doc_cid: str) -> Ingested | None:
    row = connection.execute(
        """
        SELECT doc_cid, chunks, tokens, event_id FROM documents JOIN corpora ON corpora.id = corpus
        WHERE corpora.name = ? AND doc_cid = ?
        """,
        (corpus, doc_cid),
    ).fetchone()
    return Ingested(**dict(row)) if row is not None else None


def _corpus_for(connection: sqlite3.Connection, name: str) -> int:
    row = connection.execute("SELECT id FROM corpora WHERE name = ?", (name,)).fetchone()
    if row is not None:
        return int(row["id"])
    made = connection.execute("INSERT INTO corpora (name) VALUES (?)", (name,)).lastrowid or 0
    make_passages_table(connection, made)
    return made


def _insert_document(connection: sqlite3.Connection, corpus: int, entry: IndexEntry, made: Ingested) -> int:
    document = entry.document
    cursor = connection.execute(
        """
        INSERT INTO documents
            (corpus, doc_cid, title, name, language, year, metadata, size_bytes, chunks, tokens, event_id,
             pages_without_text)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        """,
        (
            corpus, entry.doc_cid, document.title, entry.name, document.language, entry.year,
            json.dumps(entry.metadata, ensure_ascii=False), len(document.body.encode()),
            made.chunks, made.tokens, made.event_id,
            msgspec.json.encode(document.without_text).decode(),
        ),
    )  # fmt: skip
    return cursor.lastrowid or 0


def _insert_chunks(
    connection: sqlite3.Connection, corpus: int, document: int, rows: Iterable[PassageRow]
) -> None:
    table = passages_table(corpus)
    for index, row in enumerate(rows):
        *stems, headings = row.stems
        chunk = connection.execute(
            "INSERT INTO chunks (document, number, heading, page, headings, text) VALUES (?, ?, ?, ?, ?, ?)",
            (document, index, row.heading, row.page, headings, row.text),
        ).lastrowid
        connection.execute(
            f"INSERT INTO {table} (rowid, title, heading, text) VALUES (?, ?, ?, ?)", (chunk, *stems)
        )
        connection.execute(f"INSERT INTO {table} (rowid) VALUES (-?)", (chunk,))


def _remove(connection: sqlite3.Connection, corpus: str, doc_cid: str) -> tuple[int, int]:
    """Remove a document; return the number of its corpus and the number of its passages."""
    row = connection.execute(
        """
        SELECT documents.id AS id, corpus, chunks FROM documents JOIN corpora ON corpora.id = corpus
        WHERE corpora.name = ? AND doc_cid = ?
        """,
        (corpus, doc_cid),
    ).fetchone()
    if row is None:
        return 0, 0
    table = passages_table(row["corpus"])
    columns_of_passages = connection.execute(
        f"""
        SELECT {table}.title, {table}.heading, {table}.text, headings
        FROM chunks JOIN {table} ON {table}.rowid = chunks.id WHERE document = ?
        """,
        (row["id"],),
    )
    forget(connection, row["corpus"], (tuple(columns) for columns in columns_of_passages.fetchall()))
    connection.execute(
        f"""
        DELETE FROM {table}
        WHERE rowid IN (
            SELECT id FROM chunks WHERE document = ?1 UNION SELECT -id FROM chunks WHERE document = ?1
        )
        """,
        (row["id"],),
    )
    connection.execute("DELETE FROM chunks WHERE document = ?", (row["id"],))
    connection.execute("DELETE FROM documents WHERE id = ?", (row["id"],))
    return row["corpus"], row["chunks"]
