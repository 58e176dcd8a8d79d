"""The wall: a database in memory that can do nothing but answer, whatever the gates let through.

- It is made for one query, holds the rows that the asker may see, and nothing is attached to it.
- An authorizer allows reading the views' columns and calling functions of the list; all else is denied:
  writing, PRAGMA, ATTACH, the schema, recursion, virtual tables. `query_only` forbids writing once more.
- Limits of SQLite on lengths, columns, depth, arguments, patterns and the size of the program.
- Bounds on time, steps, memory, rows and bytes.

Everything here blocks; callers run it in a thread.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from hearthnet_mesh.query import grammar
from hearthnet_mesh.query.refusal import refused
from hearthnet_mesh.query.views import LARGEST, VIEWS, Row, Value

SECONDS: Final = 1.0
MOST_STEPS: Final = 20_000_000
"""Instructions of SQLite's machine."""
MOST_BYTES: Final = 262_144
"""Of all rows together, as UTF-8."""
HEAP_BYTES: Final = 67_108_864
"""Of all databases of this process: it has no other."""
MOST_LOOKS: Final = 20_000
"""Questions to the authorizer: a query that asks more is made of copies of itself."""
_EVERY: Final = 100
"""Instructions between two looks at the clock."""
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


class Result(NamedTuple):
    """The names of the columns, the rows, and whether there were more."""

    columns: list[str]
    rows: list[list[Value]]
    truncated: bool


class _Guard:
    """What SQLite asks while it prepares and runs one query; remembers why it was stopped."""

    def __init__(self, seconds: float, steps: int) -> None:
        self._until = time.monotonic() + seconds
        self._steps = steps
        self._looks = 0
        self.stopped = ""
        self.denied = ""

    def authorize(self, action: int, first: str | None, second: str | None, *where: str | None) -> int:
        """The authorizer: OK for reading the views, DENY for all else."""
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
            # Without a column for count(*); without a table's columns for what a subquery makes.
            return first not in _FOREIGN and (second == "" or first not in VIEWS or second in VIEWS[first])
        return action == sqlite3.SQLITE_SELECT or second in grammar.AT_THE_WALL

    def tick(self) -> int:
        """The progress handler: anything but 0 stops the query."""
        self._steps -= _EVERY
        if self._steps <= 0:
            self.stopped = "steps"
        elif time.monotonic() >= self._until:
            self.stopped = "time"
        return bool(self.stopped)


_FOREIGN: Final = frozenset(
    {"sqlite_master", "sqlite_schema", "sqlite_temp_master", "sqlite_temp_schema", "sqlite_sequence"}
)


def run(
    sql: str,
    values: Mapping[str, Any],
    tables: Mapping[str, list[Row]],
    limit: int,
    *,
    seconds: float | None = None,
    steps: int = MOST_STEPS,
) -> Result:
    """What `sql` answers over `tables`, at most `limit` rows; `bad_request` where the wall refuses it.

    It may take `seconds`, one where they are not given.
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
    """Makes every view, empty where no rows are given."""
    database.execute("BEGIN")
    for view, columns in VIEWS.items():
        database.execute(f"CREATE TABLE {view} ({', '.join(columns)})")
        marks = ", ".join("?" * len(columns))
        database.executemany(f"INSERT INTO {view} VALUES ({marks})", tables.get(view, ()))
    database.execute("COMMIT")


def _close_in(database: sqlite3.Connection, guard: _Guard) -> None:
    """From here on nothing can be changed, not by us either: the authorizer comes last."""
    for pragma in (
        "trusted_schema = OFF", "temp_store = MEMORY", f"hard_heap_limit = {HEAP_BYTES}", "query_only = ON",
    ):  # fmt: skip
        database.execute(f"PRAGMA {pragma}")
    for limit, most in _LIMITS.items():
        database.setlimit(limit, most)
    database.text_factory = _text
    database.set_progress_handler(guard.tick, _EVERY)
    database.set_authorizer(guard.authorize)


def _answer(
    database: sqlite3.Connection, guard: _Guard, sql: str, values: Mapping[str, Any], limit: int
) -> Result:
    try:
        cursor = database.execute(sql, values)
        columns = [str(one[0])[:200] for one in cursor.description or ()]
        rows, truncated = _take(cursor, limit)
    except MemoryError:
        raise refused("memory", "it takes too much memory; sort or join less at once") from None
    except (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeError) as error:
        raise _why(guard, error) from error
    return Result(columns, rows, truncated)


def _take(cursor: sqlite3.Cursor, limit: int) -> tuple[list[list[Value]], bool]:
    """Up to `limit` rows of up to so many bytes, and whether that was not all."""
    rows: list[list[Value]] = []
    left = MOST_BYTES
    for row in cursor:
        shown = [_shown(value) for value in row]
        left -= sum(len(one.encode()) if isinstance(one, str) else 24 for one in shown)
        if len(rows) == limit or left < 0:
            return rows, True
        rows.append(shown)
    return rows, False


def _shown(value: Any) -> Value:
    """A value as JSON carries it: too large a number as text, bytes in hexadecimal, infinity as null."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, int) and abs(value) > LARGEST:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    plain: Value = value
    return plain


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")


def _why(guard: _Guard, error: Exception) -> Exception:
    if guard.stopped == "time":
        return refused("time", "it takes longer than a second; read fewer rows, or join by equal columns")
    if guard.stopped == "steps":
        return refused("steps", "it takes too many steps; read fewer rows, or join by equal columns")
    if guard.denied:
        return refused("wall", f"the database does not allow {guard.denied}; read the views only")
    return refused("runs", f"SQLite does not take it: {str(error)[:200]}; mend the query")
