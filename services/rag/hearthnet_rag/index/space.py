"""Release of disk space after removals (docs/decisions/0157).

FTS5 stores removals as entries of their own until they are merged with the removed entries, and SQLite keeps
free pages. Both are processed in steps of a few megabytes.
"""

from __future__ import annotations

import sqlite3
from typing import Final

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
