"""What each event of the log does to the tables of the view, in the order of the log.

    created   a post; none where its author's client id stands for one that was deleted
    updated   other fields, where the post is current
    expired   the post is no longer current
    deleted   what the event lists is gone: its words from the tables, its events from the log

Whatever is asked here can be asked again: the same log gives the same tables.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final

import msgspec

from hearthnet.service.events import Event
from hearthnet.times import from_rfc3339
from hearthnet_market.posts import CREATED, DELETED, EXPIRED, UPDATED

_TEXTS: Final = ("title", "body", "tags")
_INSERT: Final = """
    INSERT INTO post (event_id, lamport, first_lamport, author, category, title, body, location, tags,
                      created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_GONE: Final = """
    INSERT INTO post (event_id, lamport, first_lamport, author, category, title, body, tags, created_at,
                      expires_at, ended_lamport, ended_reason, ended_by, ended_at, deleted)
    VALUES (?, ?, ?, ?, 'info', '', '', '[]', ?, ?, ?, 'deleted', ?, ?, 1)"""
_TEXT: Final = "SELECT title, body, tags FROM post WHERE id = ?"
_EMPTIED: Final = """
    UPDATE post SET lamport = ?, category = 'info', title = '', body = '', location = NULL, tags = '[]',
      ended_lamport = ?, ended_reason = 'deleted', ended_by = ?, ended_note = NULL, ended_at = ?, deleted = 1
    WHERE id = ?"""


def take(database: sqlite3.Connection, event: Event, lamport: int) -> None:
    """Takes in one event; one of a type that is not known here changes nothing."""
    if event.event_type == CREATED:
        _create(database, event, lamport)
    elif event.event_type == UPDATED:
        _update(database, event, lamport)
    elif event.event_type == EXPIRED:
        _end(database, event, lamport)
    elif event.event_type == DELETED:
        _delete(database, event, lamport)


def _create(database: sqlite3.Connection, event: Event, lamport: int) -> None:
    known = "SELECT 1 FROM erased WHERE author = ? AND client_id = ?"
    if database.execute(known, (event.author, event.client_id)).fetchone():
        # Two processes: one had not heard yet that the other has deleted it.
        database.execute("INSERT OR IGNORE INTO erasing VALUES (?)", (lamport,))
        return
    data, created = event.data, from_rfc3339(event.wall_clock)
    tags = list(data.get("tags") or [])
    row = database.execute(
        _INSERT,
        (
            event.event_id,
            lamport,
            lamport,
            event.author,
            data["category"],
            data["title"],
            data["body"],
            _json(data.get("location")),
            _json(tags),
            created,
            created + int(data["ttl_seconds"]) * 1000,
        ),
    )
    _remember(database, int(row.lastrowid or 0), event, lamport)
    _index(database, int(row.lastrowid or 0), data["title"], data["body"], tags)


def _update(database: sqlite3.Connection, event: Event, lamport: int) -> None:
    sql = "SELECT id FROM post WHERE event_id = ? AND ended_lamport IS NULL"
    found = database.execute(sql, (event.data["target_event_id"],)).fetchone()
    if found is None:
        return
    at, fields = from_rfc3339(event.wall_clock), dict(event.data["fields"])
    changes: dict[str, Any] = {name: fields[name] for name in ("category", "title", "body") if name in fields}
    changes |= {name: _json(fields[name]) for name in ("location", "tags") if name in fields}
    if "ttl_seconds" in fields:
        changes["expires_at"] = at + int(fields["ttl_seconds"]) * 1000
    changes |= {"lamport": lamport, "updated_at": at}
    set_ = ", ".join(f"{name} = ?" for name in changes)
    database.execute(
        f"UPDATE post SET {set_}, updates = updates + 1 WHERE id = ?", (*changes.values(), found[0])
    )
    _remember(database, found[0], event, lamport)
    if any(name in fields for name in _TEXTS):
        _unindex(database, found[0])
        title, body, tags = database.execute(_TEXT, found).fetchone()
        _index(database, found[0], title, body, msgspec.json.decode(tags))


def _end(database: sqlite3.Connection, event: Event, lamport: int) -> None:
    data = event.data
    row = database.execute(
        """
        UPDATE post SET ended_lamport = ?, ended_reason = ?, ended_by = ?, ended_note = ?, ended_at = ?
        WHERE event_id = ? AND ended_lamport IS NULL RETURNING id""",
        (
            lamport,
            data["reason"],
            event.author,
            data.get("note"),
            from_rfc3339(event.wall_clock),
            data["target_event_id"],
        ),
    ).fetchone()
    if row is not None:
        _remember(database, row[0], event, lamport)
        _unindex(database, row[0])


def _delete(database: sqlite3.Connection, event: Event, lamport: int) -> None:
    """The event says itself what it takes with it: of a log that was read later, nothing else tells."""
    at = from_rfc3339(event.wall_clock)
    for post in event.data["posts"]:
        sql = "SELECT id FROM post WHERE event_id = ?"
        row = database.execute(sql, (post["event_id"],)).fetchone()
        if row is None:
            first = int(post["lamport"])
            gone = (post["event_id"], lamport, first, post["author"], at, at, lamport, event.author, at)
            database.execute(_GONE, gone)
        else:
            database.execute(_EMPTIED, (lamport, lamport, event.author, at, row[0]))
            _unindex(database, row[0])
        for act in post["acts"]:
            database.execute(
                "INSERT OR IGNORE INTO erased VALUES (?, ?, ?, ?, ?)",
                (act["author"], act["client_id"], act["event_id"], act["lamport"], act["digest"]),
            )
            database.execute("DELETE FROM act WHERE lamport = ?", (act["lamport"],))
            database.execute("INSERT OR IGNORE INTO erasing VALUES (?)", (act["lamport"],))


def _remember(database: sqlite3.Connection, post: int, event: Event, lamport: int) -> None:
    database.execute(
        "INSERT OR REPLACE INTO act VALUES (?, ?, ?, ?, ?, ?)",
        (lamport, post, event.event_id, event.author, event.client_id, event.arguments_digest),
    )


def _index(database: sqlite3.Connection, post: int, title: str, body: str, tags: list[str]) -> None:
    database.execute(
        "INSERT INTO post_text (rowid, title, body, tags) VALUES (?, ?, ?, ?)",
        (post, title, body, " ".join(tags)),
    )


def _unindex(database: sqlite3.Connection, post: int) -> None:
    """Takes the post out of the index; one that is not in it is well."""
    database.execute("DELETE FROM post_text WHERE rowid = ?", (post,))


def _json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
