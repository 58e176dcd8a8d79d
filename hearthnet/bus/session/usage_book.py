"""Counts of the calls between this home and others: for each day, home and capability.

    served    calls of others, answered by a service of this home
    used      calls of this home, answered by others

One SQLite file for all processes of the node; each adds its counts about once a second. Days are local ones
of this computer; those of more than 90 days ago are removed. It has no contents of calls.

See: docs/sharing.md#who-used-what.
"""

from __future__ import annotations

import fcntl
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

KEPT_DAYS: Final = 90
_log = logging.getLogger(__name__)
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
Direction = Literal["served", "used"]
_BUSY_SECONDS: Final = 5.0
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS usage (
    day TEXT NOT NULL, direction TEXT NOT NULL, home TEXT NOT NULL, service TEXT NOT NULL,
    capability TEXT NOT NULL, calls INTEGER NOT NULL, ms INTEGER NOT NULL,
    tokens_in INTEGER NOT NULL, tokens_out INTEGER NOT NULL,
    PRIMARY KEY (day, direction, home, service, capability)
) WITHOUT ROWID
"""
_ADD: Final = """
INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET calls = calls + excluded.calls, ms = ms + excluded.ms,
    tokens_in = tokens_in + excluded.tokens_in, tokens_out = tokens_out + excluded.tokens_out
"""


class UsageKey(NamedTuple):
    """The calls that are counted together.

    `home` is the person or node of the other home; `service` one of this node, "" for `used`.
    """

    day: str
    direction: Direction
    home: str
    service: str
    capability: str


class UsageCount(NamedTuple):
    """Calls, their processing time in milliseconds, and the tokens of models where they are known."""

    calls: int
    ms: int
    tokens_in: int = 0
    tokens_out: int = 0

    def plus(self, other: UsageCount) -> UsageCount:
        """Return the sum."""
        return UsageCount(*(one + more for one, more in zip(self, other, strict=True)))


class UsageBook:
    """The counts in the folder `usage` of a home. All methods raise OSError or sqlite3.Error."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, counts: Iterable[tuple[UsageKey, UsageCount]]) -> None:
        """Add counts, and remove those of days that are over for long; a damaged file is put aside first."""
        rows = [(*key, *count) for key, count in counts]
        oldest = days_before(max(row[0] for row in rows), KEPT_DAYS)
        try:
            self._add(rows, oldest)
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            self._put_aside()
            self._add(rows, oldest)

    def _add(self, rows: list[tuple[Any, ...]], oldest: str) -> None:
        with self._opened(create=True) as database, database:
            database.executemany(_ADD, rows)
            database.execute("DELETE FROM usage WHERE day < ?", (oldest,))

    def rows(self, since: str) -> list[tuple[UsageKey, UsageCount]]:
        """Return the counts of the days from `since` on, the newest day first."""
        with self._opened() as database:
            found = database.execute(
                "SELECT * FROM usage WHERE day >= ? ORDER BY day DESC, direction, home, service, capability",
                (since,),
            ).fetchall()
        return [(UsageKey(*row[:5]), UsageCount(*row[5:])) for row in found]

    def served_ms(self, day: str, service: str) -> dict[str, int]:
        """Return the processing time of each home at a service of this node on one day."""
        with self._opened() as database:
            found = database.execute(
                "SELECT home, sum(ms) FROM usage WHERE day = ? AND direction = 'served' AND service = ? "
                "GROUP BY home",
                (day, service),
            ).fetchall()
        return dict(found)

    def forget(self, homes: Iterable[str]) -> int:
        """Remove all counts of these homes; return the number of rows."""
        with self._opened() as database, database:
            removed = [
                database.execute("DELETE FROM usage WHERE home = ?", (home,)).rowcount for home in homes
            ]
        return sum(removed)

    def keep_only(self, is_known: Callable[[str], bool]) -> int:
        """Remove all counts of homes that are not known any more; return the number of rows."""
        with self._opened() as database:
            homes = [home for (home,) in database.execute("SELECT DISTINCT home FROM usage")]
        return self.forget(home for home in homes if not is_known(home))

    def _put_aside(self) -> None:
        """Rename the file, unless another process has done so."""
        path = self._folder / "usage.db"
        with (self._folder / "usage.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                with self._opened(create=True) as database:
                    if database.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok":
                        return
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
            _log.error("%s is damaged and put aside: counts begin anew", path)
            for beside in ("usage.db-wal", "usage.db-shm"):
                (self._folder / beside).unlink(missing_ok=True)
            path.replace(path.with_name("usage.db.damaged"))

    @contextmanager
    def _opened(self, *, create: bool = False) -> Iterator[sqlite3.Connection]:
        path = self._folder / "usage.db"
        if create:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        database = sqlite3.connect(path if create or path.exists() else ":memory:", timeout=_BUSY_SECONDS)
        with closing(database):
            database.execute("PRAGMA secure_delete = ON")
            if create or path.exists():
                database.execute("PRAGMA journal_mode = WAL")
                database.execute("PRAGMA synchronous = NORMAL")
            database.execute(_TABLE)
            yield database


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED


def days_before(day: str, count: int) -> str:
    """Return the day `count` days before `day`, both as `2026-11-28`."""
    return (date.fromisoformat(day) - timedelta(days=count)).isoformat()
