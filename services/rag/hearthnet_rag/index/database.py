"""The database file of the index: its tables, its opening, and the handling of damage.

    corpora     one row for each corpus; its passages are searched in an FTS5 table of its own,
                `passages_<id>`, so that the rarity of a word is that within the corpus, and the content of
                one corpus cannot be inferred from another
    documents   one row for each document, unique by (corpus, doc_cid); `name` is its source as given by its
                sender, by which a newer version replaces an older one
    chunks      one row for each passage: its heading and text as displayed, its first page, and in
                `headings` the words of its title and headings, one a line, as written
    words       one row for each stem of a corpus: the number of passages that contain it
                (document_frequencies.py)
    vectors     one row for each window of a passage, if a model makes vectors (vectors.py)

A file that is not an index, is damaged, or was written by another version is moved aside and never
overwritten.

Removals release disk space (docs/decisions/0157). FTS5 stores removals as entries of their own until they are
merged with the removed entries, and SQLite keeps free pages. Both are processed in steps of a few megabytes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import time
from pathlib import Path
from typing import Final

from hearthnet import HearthNetError
from hearthnet_rag.index import vectors
from hearthnet_rag.text import document_frequencies

_STEP_PAGES: Final = 1_000
_SPARE_PAGES: Final = 250
"""Free pages, 1 MB, that are kept for additions."""
INCREMENTAL: Final = 2
"""SQLite's setting `auto_vacuum` with which free pages can be released; set before a file has pages."""
_SHARE: Final = 0.25
"""Share of a corpus whose removal makes its word table due for merging."""


class Space:
    """Removals of one index since its process began; for one thread at a time."""

    def __init__(self) -> None:
        self._gone: dict[int, int] = {}
        self._merging: set[int] = set()

    def lost(self, corpus: int, passages: int) -> None:
        """Record that a number of passages was removed."""
        self._gone[corpus] = self._gone.get(corpus, 0) + passages

    def merge(self, connection: sqlite3.Connection) -> bool:
        """Merge a part of the due tables in the caller's transaction; return whether more is left."""
        for corpus, gone in self._gone.items():
            if gone and gone >= _SHARE * (gone + _passages(connection, corpus)):
                self._gone[corpus] = 0
                self._merging.add(corpus)
                _merge(connection, corpus, -_STEP_PAGES)
        for corpus in tuple(self._merging):
            before = connection.total_changes
            _merge(connection, corpus, _STEP_PAGES)
            if connection.total_changes - before < 2:  # FTS5's sign that nothing was left to merge
                self._merging.discard(corpus)
        return bool(self._merging)


def give_back(connection: sqlite3.Connection) -> bool:
    """Release some free pages, in a transaction of its own; return whether many more are left."""
    free = _figure(connection, "freelist_count") - _SPARE_PAGES
    if free <= 0 or _figure(connection, "auto_vacuum") != INCREMENTAL:
        return False
    # `execute` would fetch one row only, and each row frees one page.
    connection.executescript(f"PRAGMA incremental_vacuum ({min(free, _STEP_PAGES)})")
    connection.execute("PRAGMA wal_checkpoint (PASSIVE)").fetchall()  # the file becomes shorter only then
    return free > _STEP_PAGES


def _merge(connection: sqlite3.Connection, corpus: int, pages: int) -> None:
    table = f"passages_{int(corpus)}"
    connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)", (pages,))


def _passages(connection: sqlite3.Connection, corpus: int) -> int:
    row = connection.execute("SELECT sum(chunks) FROM documents WHERE corpus = ?", (corpus,)).fetchone()
    return int(row[0] or 0)


def _figure(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


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
    """Raised for a file that is not an index usable by this version."""


def open_database(folder: Path) -> tuple[sqlite3.Connection, Path | None]:
    """Open or create the index in `folder`.

    The second result is the path to which a damaged file was moved, or None.

    Raises:
        HearthNetError: `capacity_exceeded` if the disk is full; `internal_error` if the folder cannot be
            written.
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


def replace_file(file: Path, data: bytes) -> None:
    """Replace `file` in one step by one with `data`, which is on disk when this returns.

    Raises:
        HearthNetError: `capacity_exceeded` if the disk is full.
    """
    beside = file.with_suffix(".new")
    try:
        with beside.open("wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        beside.replace(file)
        folder = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise as_wire_error(error, file) from error


def as_wire_error(error: OSError | sqlite3.DatabaseError, file: Path) -> HearthNetError:
    """Return the wire error for a failure to read or write `file`."""
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


def connect(file: Path) -> sqlite3.Connection:
    """Return a connection that any thread may use; transactions are begun explicitly."""
    connection = sqlite3.connect(file, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    return connection


def passages_table(corpus: int) -> str:
    """Return the name of a corpus's FTS5 table."""
    return f"passages_{int(corpus)}"


def make_passages_table(connection: sqlite3.Connection, corpus: int) -> None:
    """Create the FTS5 table of a new corpus.

    Its text consists of stems, so SQLite only splits it at blanks. Each passage has an empty companion row
    with the negated id: FTS5 ranks a word as worthless if half of all rows have it, as the word "package" in
    a book about packages (docs/decisions/0133).
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
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == 0:
        connection.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}").fetchall()  # before it has pages
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.execute("PRAGMA foreign_keys = ON")
    # Writes that a power failure loses are restored from the journal, which is on disk first.
    connection.execute("PRAGMA synchronous = NORMAL")
    if version not in {0, VERSION}:
        raise _Damaged
    if connection.execute("PRAGMA quick_check (1)").fetchone()[0] != "ok":
        raise _Damaged
    if version == 0:
        connection.executescript(_TABLES + document_frequencies.TABLES + vectors.TABLES)
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _move_aside(file: Path) -> Path:
    aside = file.with_name(f"{file.name}.damaged-{time.time_ns() // 1_000_000}")
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            file.with_name(file.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside
