"""Application of the log's events to the tables of the view, in the order of the log.

    created   add a post, unless its author's client id belongs to one that was deleted
    updated   set other fields, if the post is current
    expired   end the post
    deleted   remove the listed posts: their words from the tables, their events from the log

The result depends on the log alone: the same log gives the same tables. Adjacent new posts are inserted
together by a few long statements. Each statement waits its turn behind the thread that reads the log; with
one statement for each post, building the view of a large market took twice as long (docs/decisions/0130).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

import msgspec

from hearthnet.core import from_rfc3339
from hearthnet.service import Event, Recorded
from hearthnet_market.schemas import CREATED, DELETED, EXPIRED, UPDATED

_TEXTS: Final = ("title", "body", "tags")
_ZERO: Final = "\\u0000"
_ACT: Final = ("lamport", "post", "event_id", "author", "client_id", "digest")
_INSERT_DELETED: Final = """
    INSERT INTO post (id, event_id, lamport, author, category, title, body, tags, created_at,
                      expires_at, ended_lamport, ended_reason, ended_by, ended_at, deleted)
    VALUES (?, ?, ?, ?, 'info', '', '', '[]', ?, ?, ?, 'deleted', ?, ?, 1)"""
_EMPTIED: Final = """
    UPDATE post SET lamport = ?, category = 'info', title = '', body = '', location = NULL, tags = '[]',
      ended_lamport = ?, ended_reason = 'deleted', ended_by = ?, ended_note = NULL, ended_at = ?, deleted = 1
    WHERE id = ?"""
_ERASED: Final = """
    SELECT erased.author, erased.client_id FROM json_each(?) AS made CROSS JOIN erased
    ON erased.author = made.value ->> 0 AND erased.client_id = made.value ->> 1"""
_INDEX: Final = """
    INSERT INTO post_text (rowid, title, body, tags) SELECT id, title, body, tags FROM current_text
    WHERE id BETWEEN ? AND ?"""
_UNINDEX: Final = """
    INSERT INTO post_text (post_text, rowid, title, body, tags)
    SELECT 'delete', id, title, body, tags FROM current_text WHERE id = ?"""


def take(database: sqlite3.Connection, batch: Sequence[Recorded]) -> None:
    """Apply events in their order; an event of an unknown type has no effect."""
    for created, run in groupby(batch, lambda recorded: recorded.event.event_type == CREATED):
        if created:
            _create(database, list(run))
            continue
        for recorded in run:
            if change := _CHANGES.get(recorded.event.event_type):
                change(database, recorded.event, recorded.lamport)


def _create(database: sqlite3.Connection, run: list[Recorded]) -> None:
    made_by = _json([(made.event.author, made.event.client_id) for made in run])
    erased = set(database.execute(_ERASED, (made_by,)))
    if erased:
        # Two processes: one created it again before it read that the other had deleted it.
        again = [made for made in run if (made.event.author, made.event.client_id) in erased]
        database.executemany("INSERT OR IGNORE INTO erasing VALUES (?)", [(made.lamport,) for made in again])
        run = [made for made in run if (made.event.author, made.event.client_id) not in erased]
    if not run:
        return
    posts = [_post(made.event, made.lamport) for made in run]
    _insert(database, "post", list(posts[0]), [tuple(post.values()) for post in posts])
    _remember(database, [(made.lamport, made.event, made.lamport) for made in run])
    database.execute(_INDEX, (run[0].lamport, run[-1].lamport))


def _post(event: Event, lamport: int) -> dict[str, Any]:
    """Return the columns of a new post."""
    data, created = event.data, from_rfc3339(event.wall_clock)
    location = data.get("location")
    return {
        "id": lamport,
        "event_id": event.event_id,
        "author": event.author,
        "category": data["category"],
        "title": data["title"],
        "body": data["body"],
        "location": None if location is None else _json(location),
        "tags": _json(list(data.get("tags") or [])),
        "created_at": created,
        "expires_at": created + int(data["ttl_seconds"]) * 1000,
        "lamport": lamport,
    }


def _update(database: sqlite3.Connection, event: Event, lamport: int) -> None:
    post = _current(database, event.data["target_event_id"])
    if post is None:
        return
    at, fields = from_rfc3339(event.wall_clock), dict(event.data["fields"])
    changes: dict[str, Any] = {name: fields[name] for name in ("category", "title", "body") if name in fields}
    if "location" in fields:
        changes["location"] = None if fields["location"] is None else _json(fields["location"])
    if "tags" in fields:
        changes["tags"] = _json(fields["tags"])
    if "ttl_seconds" in fields:
        changes["expires_at"] = at + int(fields["ttl_seconds"]) * 1000
    changes |= {"lamport": lamport, "updated_at": at}
    set_ = ", ".join(f"{name} = ?" for name in changes)
    text_changed = any(name in fields for name in _TEXTS)
    if text_changed:
        database.execute(_UNINDEX, (post,))
    database.execute(f"UPDATE post SET {set_}, updates = updates + 1 WHERE id = ?", (*changes.values(), post))
    if text_changed:
        database.execute(_INDEX, (post, post))
    _remember(database, [(post, event, lamport)])


def _end(database: sqlite3.Connection, event: Event, lamport: int) -> None:
    data = event.data
    post = _current(database, data["target_event_id"])
    if post is None:
        return
    database.execute(_UNINDEX, (post,))
    at = from_rfc3339(event.wall_clock)
    database.execute(
        "UPDATE post SET ended_lamport = ?, ended_reason = ?, ended_by = ?, ended_note = ?, ended_at = ? "
        "WHERE id = ?",
        (lamport, data["reason"], event.author, data.get("note"), at, post),
    )
    _remember(database, [(post, event, lamport)])


def _delete(database: sqlite3.Connection, event: Event, lamport: int) -> None:
    """Apply a deletion, which lists its posts and events itself.

    A log that is read later has no other record of them.
    """
    at = from_rfc3339(event.wall_clock)
    for post in event.data["posts"]:
        sql = "SELECT id FROM post WHERE event_id = ?"
        row = database.execute(sql, (post["event_id"],)).fetchone()
        if row is None:
            first = int(post["lamport"])
            deleted = (first, post["event_id"], lamport, post["author"], at, at, lamport, event.author, at)
            database.execute(_INSERT_DELETED, deleted)
        else:
            database.execute(_UNINDEX, row)
            database.execute(_EMPTIED, (lamport, lamport, event.author, at, row[0]))
        for act in post["acts"]:
            database.execute(
                "INSERT OR IGNORE INTO erased VALUES (?, ?, ?, ?, ?)",
                (act["author"], act["client_id"], act["event_id"], act["lamport"], act["digest"]),
            )
            database.execute("DELETE FROM act WHERE lamport = ?", (act["lamport"],))
            database.execute("INSERT OR IGNORE INTO erasing VALUES (?)", (act["lamport"],))


_CHANGES: Final = {UPDATED: _update, EXPIRED: _end, DELETED: _delete}


def _current(database: sqlite3.Connection, event_id: str) -> int | None:
    sql = "SELECT id FROM post WHERE event_id = ? AND ended_lamport IS NULL"
    row = database.execute(sql, (event_id,)).fetchone()
    return None if row is None else int(row[0])


def _remember(database: sqlite3.Connection, acts: list[tuple[int, Event, int]]) -> None:
    """Record the place, the post and the arguments of each event."""
    rows = [
        (lamport, post, event.event_id, event.author, event.client_id, event.arguments_digest)
        for post, event, lamport in acts
    ]
    _insert(database, "act", _ACT, rows)


def _insert(
    database: sqlite3.Connection, table: str, columns: Sequence[str], rows: list[tuple[Any, ...]]
) -> None:
    """Insert all rows by one statement, or one by one if a text has a zero character.

    A zero character ends a text in SQLite's JSON functions.
    """
    names, values = ", ".join(columns), _json(rows)
    if _ZERO in values:
        places = ", ".join("?" for _ in columns)
        database.executemany(f"INSERT INTO {table} ({names}) VALUES ({places})", rows)
        return
    selected = ", ".join(f"value ->> {place}" for place in range(len(columns)))
    database.execute(f"INSERT INTO {table} ({names}) SELECT {selected} FROM json_each(?)", (values,))


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
