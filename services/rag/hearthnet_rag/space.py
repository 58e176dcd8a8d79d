"""Disk space that removed passages leave: merged out of the words, and given back (docs/decisions/0157).

FTS5 notes what was removed beside what is there until both are merged, and SQLite keeps pages that became
free. Both are undone in steps of a few megabytes.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path
from typing import Final

from hearthnet.home import ROOM_BYTES

_STEP_PAGES: Final = 1_000
_SPARE_PAGES: Final = 250
"""Free pages, 1 MB, that are left for what is added next."""
_INCREMENTAL: Final = 2
_SHARE: Final = 0.25
"""A table of words is merged when so much of its corpus went since."""


class Space:
    """What has gone of one index since its process began; for one thread at a time."""

    def __init__(self) -> None:
        self._gone: dict[int, int] = {}
        self._merging: set[int] = set()

    def lost(self, corpus: int, passages: int) -> None:
        """Notes that so many passages were removed."""
        self._gone[corpus] = self._gone.get(corpus, 0) + passages

    def merge(self, connection: sqlite3.Connection) -> bool:
        """Merges a part of what is due, in the transaction of the caller; whether there is more."""
        for corpus, gone in self._gone.items():
            if gone and gone >= _SHARE * (gone + _passages(connection, corpus)):
                self._gone[corpus] = 0
                self._merging.add(corpus)
                _merge(connection, corpus, -_STEP_PAGES)
        for corpus in tuple(self._merging):
            before = connection.total_changes
            _merge(connection, corpus, _STEP_PAGES)
            if connection.total_changes - before < 2:  # as FTS5 says that nothing was left to merge
                self._merging.discard(corpus)
        return bool(self._merging)


def give_back(connection: sqlite3.Connection) -> bool:
    """Gives some free pages back, in a transaction of its own; whether there are many more."""
    free = _figure(connection, "freelist_count") - _SPARE_PAGES
    if free <= 0 or _figure(connection, "auto_vacuum") != _INCREMENTAL:
        return False
    # Not `execute`, which asks for one row only, and each row is one page.
    connection.executescript(f"PRAGMA incremental_vacuum ({min(free, _STEP_PAGES)})")
    _checkpoint(connection, "PASSIVE")  # the file becomes shorter only then
    return free > _STEP_PAGES


def make_reclaimable(connection: sqlite3.Connection) -> None:
    """Has a database that is new, or of an earlier version with much free space, give back free pages.

    The latter is written anew once; where the disk has no room for that, it stays as it is, and the disk too:
    other programs of this node need what is free.
    """
    if _figure(connection, "auto_vacuum") == _INCREMENTAL:
        return
    pages, free = _figure(connection, "page_count"), _figure(connection, "freelist_count")
    connection.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}").fetchall()
    if free > max(_SPARE_PAGES, pages // 10) and _has_room(connection, pages - free):
        with contextlib.suppress(sqlite3.OperationalError):
            connection.execute("VACUUM")
        # The log holds all that was written, also of an attempt that failed, and keeps its size.
        _checkpoint(connection, "TRUNCATE")


def _has_room(connection: sqlite3.Connection, pages: int) -> bool:
    """Whether the disk can take a copy of `pages` and the log of writing it, with room for others left."""
    file = connection.execute("PRAGMA database_list").fetchone()["file"]
    needed = 2 * pages * _figure(connection, "page_size") + ROOM_BYTES
    return bool(file) and shutil.disk_usage(Path(file).parent).free >= needed


def _checkpoint(connection: sqlite3.Connection, mode: str) -> None:
    connection.execute(f"PRAGMA wal_checkpoint ({mode})").fetchall()


def _merge(connection: sqlite3.Connection, corpus: int, pages: int) -> None:
    table = f"passages_{int(corpus)}"
    connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)", (pages,))


def _passages(connection: sqlite3.Connection, corpus: int) -> int:
    row = connection.execute("SELECT sum(chunks) FROM documents WHERE corpus = ?", (corpus,)).fetchone()
    return int(row[0] or 0)


def _figure(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
