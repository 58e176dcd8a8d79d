"""The file of the index: its tables, how it is opened, and what happens to one that is damaged.

    corpora     one row a corpus; its passages are searched in an FTS5 table of its own, `passages_<id>`, so
                that the rarity of a word is that within the corpus, and no corpus can be felt in another
    documents   one row a document, unique by (corpus, doc_cid); `name` is where it came
                from, as its sender wrote it, by which a newer version takes the place of an older one
    chunks      one row a passage: its heading and text as they are shown, the page it begins on, and in
                `headings` the words of its title and headings, one a line, as they are written
    words       one row a stem of a corpus: in how many passages it stands (vocabulary.py)
    vectors     one row a window of a passage, where there is a model that makes them (vectors.py)

A file that is no index, is torn, or was written by another version is moved aside and never overwritten.
"""

from __future__ import annotations

import contextlib
import errno
import sqlite3
import time
from pathlib import Path
from typing import Final

from hearthnet.errors import HearthNetError
from hearthnet_rag import space, vectors, vocabulary

FILE: Final = "index.db"
VERSION: Final = 6
BUSY_SECONDS: Final = 10.0

# Title over heading over text, for a mean passage of half its length (see make_passages_table).
# Chosen by tests/quality/*practice.toml and the titles of the handbook (docs/decisions/0114, 0133).
WEIGHTS: Final = (1.2, 1.0, 0.5)

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS corpora (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;
CREATE TABLE IF NOT EXISTS documents (
    id INTEGER PRIMARY KEY,
    corpus INTEGER NOT NULL REFERENCES corpora (id),
    doc_cid TEXT NOT NULL,
    title TEXT NOT NULL,
    name TEXT,
    language TEXT,
    year INTEGER,
    metadata TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    chunks INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    pages_without_text TEXT NOT NULL,
    UNIQUE (corpus, doc_cid)
) STRICT;
CREATE TABLE IF NOT EXISTS chunks (
    id INTEGER PRIMARY KEY,
    document INTEGER NOT NULL REFERENCES documents (id),
    number INTEGER NOT NULL,
    heading TEXT,
    page INTEGER,
    headings TEXT NOT NULL,
    text TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS chunks_of ON chunks (document);
CREATE INDEX IF NOT EXISTS documents_named ON documents (corpus, name);
CREATE INDEX IF NOT EXISTS documents_titled ON documents (corpus, title);
CREATE INDEX IF NOT EXISTS documents_languages ON documents (corpus, language);
"""

_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


class _Damaged(Exception):
    """The file is no index that this program can use."""


def open_database(folder: Path) -> tuple[sqlite3.Connection, Path | None]:
    """The index in `folder`, made where there is none, and where a damaged one was moved to, if any.

    Raises `capacity_exceeded` where the disk is full, `internal_error` where the folder cannot be written.
    """
    file = folder / FILE
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(_Damaged):
            return _opened(file), None
        aside = _move_aside(file)
        return _opened(file), aside
    except (OSError, sqlite3.DatabaseError) as error:
        raise as_wire_error(error, file) from error


def as_wire_error(error: OSError | sqlite3.DatabaseError, file: Path) -> HearthNetError:
    """What a failure to read or write `file` is called on the wire."""
    code = _code(error)
    if code == sqlite3.SQLITE_FULL or getattr(error, "errno", None) == errno.ENOSPC:
        return HearthNetError("capacity_exceeded", "the disk is full; free some space, then try again")
    if code in _DAMAGE:
        return HearthNetError(
            "internal_error", f"{file} is damaged; stop and start the node, and it is rebuilt"
        )
    return HearthNetError("internal_error", f"{file}: {error}; see that this user may write there")


def _code(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)) & 0xFF


def stopped() -> HearthNetError:
    """The error of an ingestion that the end of the process cut short."""
    return HearthNetError("partition", "the rag service is stopping; the document was not added, try again")


def connect(file: Path) -> sqlite3.Connection:
    """A connection that may pass from thread to thread, and begins transactions only when told."""
    connection = sqlite3.connect(file, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    return connection


def passages_table(corpus: int) -> str:
    """The FTS5 table of a corpus."""
    return f"passages_{int(corpus)}"


def make_passages_table(connection: sqlite3.Connection, corpus: int) -> None:
    """Makes the FTS5 table of a new corpus. Its text is stems already; SQLite has to split at blanks only.

    Beside each passage stands an empty row, with its id below zero: FTS5 takes a word for worthless that half
    of all rows have; in a book about packages that is "package" (docs/decisions/0133).
    """
    table = passages_table(corpus)
    weights = ", ".join(str(weight) for weight in WEIGHTS)
    connection.execute(
        f"CREATE VIRTUAL TABLE {table} USING fts5 (title, heading, text, tokenize = 'unicode61')"
    )
    connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('rank', 'bm25({weights})')")


def _opened(file: Path) -> sqlite3.Connection:
    connection = connect(file)
    try:
        _prepare(connection)
    except sqlite3.DatabaseError as error:
        connection.close()
        if _code(error) in _DAMAGE:
            raise _Damaged from error
        raise
    except _Damaged:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
        space.make_reclaimable(connection)  # before the file has pages
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.execute("PRAGMA foreign_keys = ON")
    # What a power cut takes from the index is made up for from the journal, which is on the disk first.
    connection.execute("PRAGMA synchronous = NORMAL")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version not in {0, VERSION}:
        raise _Damaged
    if connection.execute("PRAGMA quick_check (1)").fetchone()[0] != "ok":
        raise _Damaged
    space.make_reclaimable(connection)
    if version == 0:
        connection.executescript(_TABLES + vocabulary.TABLES + vectors.TABLES)
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _move_aside(file: Path) -> Path:
    aside = file.with_name(f"{file.name}.damaged-{time.time_ns() // 1_000_000}")
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            file.with_name(file.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside
