"""The isolated database of a query: in memory, read-only, and limited ("wall").

It is safe independently of the checks in validator.py:

- It is created for one query, holds the rows that the caller may see, and has nothing attached.
- An authorizer allows reading the views' columns and calling functions of the list; all else is denied:
  writing, PRAGMA, ATTACH, the schema, recursion, virtual tables. `query_only` forbids writing once more.
- SQLite limits lengths, columns, depth, arguments, patterns and the size of the program.
- Time, steps, memory, rows and bytes are bounded.

Everything here blocks; callers run it in a thread.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from hearthnet_mesh.query import grammar
from hearthnet_mesh.query.grammar import rejected
from hearthnet_mesh.query.views import LARGEST, VIEWS, Row, Value

SECONDS: Final = 1.0
MOST_STEPS: Final = 20_000_000
"""Instructions of SQLite's virtual machine."""
MOST_BYTES: Final = 262_144
"""Size of all rows together, as UTF-8."""
HEAP_BYTES: Final = 67_108_864
"""Memory of all databases of this process, which has no others."""
MOST_LOOKS: Final = 20_000
"""Calls of the authorizer; a query that causes more multiplies itself by WITH."""
_EVERY: Final = 100
"""Instructions between two checks of the clock."""
_LIMITS: Final = {
    sqlite3.SQLITE_LIMIT_LENGTH: 65_536,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 16_384,
    sqlite3.SQLITE_LIMIT_COLUMN: 128,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 8,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 25_000,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 8,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 200,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 64,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_OF_A_READER: Final = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION})


class QueryResult(NamedTuple):
    """The names of the columns, the rows, and whether rows were cut off."""

    columns: list[str]
    rows: list[list[Value]]
    truncated: bool


class _Guard:
    """SQLite's callbacks during one query; records why the query was stopped."""

    def __init__(self, seconds: float, steps: int) -> None:
        self._until = time.monotonic() + seconds
        self._steps = steps
        self._looks = 0
        self.stopped = ""
        self.denied = ""

    def authorize(self, action: int, first: str | None, second: str | None, *where: str | None) -> int:
        """Return OK for reading the views, DENY for all else (SQLite's authorizer)."""
        self._looks += 1
        if self._looks > MOST_LOOKS:
            self.denied = "so much at once"
            return sqlite3.SQLITE_DENY
        if action in _OF_A_READER and self._may(action, (first or "").lower(), (second or "").lower()):
            return sqlite3.SQLITE_OK
        self.denied = self.denied or " ".join(str(one)[:40] for one in (first, second) if one) or "that"
        return sqlite3.SQLITE_DENY

    def _may(self, action: int, first: str, second: str) -> bool:
        if action == sqlite3.SQLITE_READ:
            # The column is empty for count(*), and unknown for the result of a subquery.
            return first not in _FOREIGN and (second == "" or first not in VIEWS or second in VIEWS[first])
        return action == sqlite3.SQLITE_SELECT or second in grammar.AT_THE_WALL

    def tick(self) -> int:
        """Return True to stop the query (SQLite's progress handler)."""
        self._steps -= _EVERY
        if self._steps <= 0:
            self.stopped = "steps"
        elif time.monotonic() >= self._until:
            self.stopped = "time"
        return bool(self.stopped)


_FOREIGN: Final = frozenset(
    {"sqlite_master", "sqlite_schema", "sqlite_temp_master", "sqlite_temp_schema", "sqlite_sequence"}
)


def execute(
    sql: str,
    values: Mapping[str, Any],
    tables: Mapping[str, list[Row]],
    limit: int,
    *,
    seconds: float | None = None,
    steps: int = MOST_STEPS,
) -> QueryResult:
    """Execute `sql` over `tables` and return at most `limit` rows.

    `seconds` bounds the time; the default is `SECONDS`.

    Raises:
        HearthNetError: `bad_request` if SQLite, the authorizer or a limit refuses the query.
    """
    database = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
    try:
        _fill(database, tables)
        guard = _Guard(SECONDS if seconds is None else seconds, steps)
        _close_in(database, guard)
        return _answer(database, guard, sql, values, limit)
    finally:
        database.close()


def _fill(database: sqlite3.Connection, tables: Mapping[str, list[Row]]) -> None:
    """Create every view, empty if it has no rows."""
    database.execute("BEGIN")
    for view, columns in VIEWS.items():
        database.execute(f"CREATE TABLE {view} ({', '.join(columns)})")
        marks = ", ".join("?" * len(columns))
        database.executemany(f"INSERT INTO {view} VALUES ({marks})", tables.get(view, ()))
    database.execute("COMMIT")


def _close_in(database: sqlite3.Connection, guard: _Guard) -> None:
    """Set all limits; the authorizer comes last, since nothing can be changed after it."""
    for pragma in (
        "trusted_schema = OFF", "temp_store = MEMORY", f"hard_heap_limit = {HEAP_BYTES}", "query_only = ON",
    ):  # fmt: skip
        database.execute(f"PRAGMA {pragma}")
    for limit, most in _LIMITS.items():
        database.setlimit(limit, most)
    database.text_factory = lambda raw: raw.decode(errors="replace")
    database.set_progress_handler(guard.tick, _EVERY)
    database.set_authorizer(guard.authorize)


def _answer(
    database: sqlite3.Connection, guard: _Guard, sql: str, values: Mapping[str, Any], limit: int
) -> QueryResult:
    try:
        cursor = database.execute(sql, values)
        columns = [str(one[0])[:200] for one in cursor.description or ()]
        rows, truncated = _fetch_rows(cursor, limit)
    except MemoryError:
        raise rejected("memory", "it takes too much memory; sort or join less at once") from None
    except (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeError) as error:
        raise _why(guard, error) from error
    return QueryResult(columns, rows, truncated)


def _fetch_rows(cursor: sqlite3.Cursor, limit: int) -> tuple[list[list[Value]], bool]:
    """Return up to `limit` rows of up to `MOST_BYTES` bytes, and whether rows were cut off."""
    rows: list[list[Value]] = []
    left = MOST_BYTES
    for row in cursor:
        shown = [_json_value(value) for value in row]
        left -= sum(len(one.encode()) if isinstance(one, str) else 24 for one in shown)
        if len(rows) == limit or left < 0:
            return rows, True
        rows.append(shown)
    return rows, False


def _json_value(value: Value | bytes) -> Value:
    """Return a value for JSON: large integers as text, bytes in hexadecimal, infinity as None."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, int) and abs(value) > LARGEST:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _why(guard: _Guard, error: Exception) -> Exception:
    if guard.stopped == "time":
        return rejected("time", "it takes longer than a second; read fewer rows, or join by equal columns")
    if guard.stopped == "steps":
        return rejected("steps", "it takes too many steps; read fewer rows, or join by equal columns")
    if guard.denied:
        return rejected("wall", f"the database does not allow {guard.denied}; read the views only")
    return rejected("runs", f"SQLite does not take it: {str(error)[:200]}; mend the query")
