"""The record of which events belong to which post of the view.

A deletion erases all of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from hearthnet.service import Event, Recorded

_ZERO: Final = "\\u0000"
_ACT: Final = ("lamport", "post", "event_id", "author", "client_id", "digest")


def is_deleted(database: sqlite3.Connection, post: int, recorded: Recorded) -> bool:
    """Return whether the post was deleted; then the event is to be erased."""
    deleted: int = database.execute("SELECT deleted FROM post WHERE id = ?", (post,)).fetchone()[0]
    if deleted:
        database.execute("INSERT OR IGNORE INTO erasing VALUES (?)", (recorded.lamport,))
    return bool(deleted)


def remember(database: sqlite3.Connection, acts: list[tuple[int, Event, int]]) -> None:
    """Record the place, the post and the arguments of each event."""
    rows = [
        (lamport, post, event.event_id, event.author, event.client_id, event.arguments_digest)
        for post, event, lamport in acts
    ]
    insert(database, "act", _ACT, rows)


def insert(
    database: sqlite3.Connection, table: str, columns: Sequence[str], rows: list[tuple[Any, ...]]
) -> None:
    """Insert all rows by one statement, or one by one if a text has a zero character.

    A zero character ends a text in SQLite's JSON functions. An event of another home that changes two posts
    with one id is an act of the first.
    """
    names, values = ", ".join(columns), as_json(rows)
    if _ZERO in values:
        places = ", ".join("?" for _ in columns)
        database.executemany(f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({places})", rows)
        return
    selected = ", ".join(f"value ->> {place}" for place in range(len(columns)))
    database.execute(
        f"INSERT OR IGNORE INTO {table} ({names}) SELECT {selected} FROM json_each(?)", (values,)
    )


def as_json(value: Any) -> str:
    """Return a value as JSON."""
    return msgspec.json.encode(value).decode()
