"""Application of the log's events to the tables of the view, in the order of the log.

    created   add a post, unless its author's client id belongs to one that was deleted
    updated   set other fields, if the post is current
    expired   end the post
    hidden    hide the post, until each event that hid it is taken back
    unhidden  take back the events that it names and that hid the post
    reserved  add a reservation, and the steps of its borrower and of the lender (loan_states.py)
    deleted   remove the listed posts: their words from the tables, their events from the log

Events of other homes arrive in any order, so the result for a post does not depend on it: of two changes of
one field the one with the higher revision counts, of two ends the earlier one, and a deletion stays. What hid
a post is taken back by its id, so that a hiding stays of which the other one knew nothing. A change that
arrives before its post, or before it is known here that its author may make it, waits.

Adjacent new posts are inserted together by a few long statements. Each statement waits its turn behind the
thread that reads the log; with one statement for each post, building the view of a large market took twice as
long (docs/decisions/0130).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final

import msgspec

from hearthnet.core import from_rfc3339
from hearthnet.service import Event, Recorded
from hearthnet_market.lending import BORROWER, LENDER, RESERVED
from hearthnet_market.post_events import as_json, insert, is_deleted, remember
from hearthnet_market.schemas import CREATED, DELETED, EXPIRED, HIDDEN, UNHIDDEN, UPDATED

Rights = Callable[[Event, str], bool]
"""Tells whether an event of another home may change posts of an author."""
_MOST_WAITING: Final = 500
"""Changes of one other home that wait for their post, or for the right to change it; the newest."""
_TEXTS: Final = ("title", "body", "tags")
_INSERT_DELETED: Final = """
    INSERT INTO post (id, event_id, lamport, author, category, title, body, tags, created_at,
                      expires_at, ended_lamport, ended_reason, ended_by, ended_at, deleted)
    VALUES (?, ?, ?, ?, 'info', '', '', '[]', ?, ?, ?, 'deleted', ?, ?, 1)"""
_STUB_ID: Final = "SELECT min(0, coalesce(min(id), 0)) - 1 FROM post"
"""The id of a post that was deleted before it came: it has no place in this log."""
_EMPTIED: Final = """
    UPDATE post SET lamport = ?, category = 'info', title = '', body = '', location = NULL, tags = '[]',
      ended_lamport = ?, ended_reason = 'deleted', ended_by = ?, ended_note = NULL, ended_at = ?, deleted = 1,
      hidden_lamport = NULL, reserved = 0 WHERE id = ?"""
_ERASED: Final = """
    SELECT erased.author, erased.client_id FROM json_each(?) AS made CROSS JOIN erased
    ON erased.author = made.value ->> 0 AND erased.client_id = made.value ->> 1"""
_INDEX: Final = """
    INSERT INTO post_text (rowid, title, body, tags) SELECT id, title, body, tags FROM current_text
    WHERE id BETWEEN ? AND ?"""
_UNINDEX: Final = """
    INSERT INTO post_text (post_text, rowid, title, body, tags)
    SELECT 'delete', id, title, body, tags FROM current_text WHERE id = ?"""


def take(database: sqlite3.Connection, batch: Sequence[Recorded], rights: Rights) -> None:
    """Apply events in their order; an event of an unknown type has no effect."""
    for created, run in groupby(batch, lambda recorded: recorded.event.event_type == CREATED):
        if created:
            made = list(run)
            _create(database, made)
            _apply_waiting(database, rights, made)
            continue
        for recorded in run:
            _change(database, recorded, recorded.lamport, rights)


def _change(database: sqlite3.Connection, recorded: Recorded, now: int, rights: Rights) -> None:
    """Apply one change, as the change of place `now`, to the posts that it may change."""
    event = recorded.event
    if event.event_type == DELETED:
        _delete(database, recorded, rights)
    elif change := _CHANGES.get(event.event_type):
        sql = "SELECT id, author FROM post WHERE event_id = ?"
        rows = database.execute(sql, (event.data["target_event_id"],)).fetchall()
        if recorded.home:
            taken = [row for row in rows if rights(event, _concerned(event, row[1]))]
        else:
            taken = sorted(rows, key=lambda row: _distance(event, row[1], rights) + row[:1])[:1]
        for post, _ in taken:
            change(database, post, recorded, now)
        if not taken and recorded.home:
            if event.event_type == UNHIDDEN:
                _take_back_own(database, rows, recorded, now)
            _wait(database, recorded, event.data["target_event_id"])
        elif event.event_type == HIDDEN:
            _apply_early_unhidings(database, rights, event, now)


def _concerned(event: Event, author: str) -> str:
    """Return the author of what the event changes: a post of `author`, or a reservation of it."""
    return str(event.data["borrower"]) if event.event_type == BORROWER else author


def _distance(event: Event, author: str, rights: Rights) -> tuple[bool, bool, bool]:
    """Return how far a call of this home is from meaning a post of `author`, of several with one id.

    Ids are chosen where a post is made, so that another home can give a post of its own an id of here.
    """
    node = event.author.partition("/")[0]
    return author != event.author, author.partition("/")[0] != node, not rights(event, author)


def _wait(database: sqlite3.Connection, recorded: Recorded, post: str) -> None:
    row = (recorded.lamport, post, recorded.home, as_json(recorded.event))
    database.execute("INSERT OR IGNORE INTO waiting VALUES (?, ?, ?, ?)", row)
    database.execute(
        "DELETE FROM waiting WHERE home = ?1 AND lamport <= (SELECT lamport FROM waiting WHERE home = ?1 "
        "ORDER BY lamport DESC LIMIT 1 OFFSET ?2)",
        (recorded.home, _MOST_WAITING),
    )


def apply_waiting(database: sqlite3.Connection, rights: Rights, now: int) -> None:
    """Apply the waiting changes whose authors may make them by now."""
    rows = database.execute("SELECT lamport, event, home FROM waiting ORDER BY lamport").fetchall()
    _again(database, rights, rows, now)


def _apply_waiting(database: sqlite3.Connection, rights: Rights, made: Sequence[Recorded]) -> None:
    """Apply the changes that came before the posts in `made`."""
    for post in made:
        sql = "SELECT lamport, event, home FROM waiting WHERE event_id = ? ORDER BY lamport"
        rows = database.execute(sql, (post.event.event_id,)).fetchall()
        _again(database, rights, rows, post.lamport)


def _again(
    database: sqlite3.Connection, rights: Rights, rows: Sequence[tuple[int, str, str]], now: int
) -> None:
    for lamport, text, home in rows:
        database.execute("DELETE FROM waiting WHERE lamport = ?", (lamport,))
        event = msgspec.json.decode(text, type=Event)
        _change(database, Recorded(event, lamport, home=home), max(now, lamport), rights)


def _create(database: sqlite3.Connection, run: list[Recorded]) -> None:
    made_by = as_json([(made.event.author, made.event.client_id) for made in run])
    erased = set(database.execute(_ERASED, (made_by,)))
    if erased:
        # Two processes: one created it again before it read that the other had deleted it.
        again = [made for made in run if (made.event.author, made.event.client_id) in erased]
        database.executemany("INSERT OR IGNORE INTO erasing VALUES (?)", [(made.lamport,) for made in again])
        run = [made for made in run if (made.event.author, made.event.client_id) not in erased]
    run = _unknown(database, run)
    if not run:
        return
    posts = [_post(made) for made in run]
    insert(database, "post", list(posts[0]), [tuple(post.values()) for post in posts])
    remember(database, [(made.lamport, made.event, made.lamport) for made in run])
    database.execute(_INDEX, (run[0].lamport, run[-1].lamport))


def _unknown(database: sqlite3.Connection, run: list[Recorded]) -> list[Recorded]:
    """Return the posts that the view does not have yet; those deleted before they came are to be erased."""
    found = dict[tuple[str, str], Recorded]()
    for made in run:
        name = (made.event.event_id, made.event.author)
        sql = "SELECT deleted FROM post WHERE event_id = ? AND author = ?"
        row = database.execute(sql, name).fetchone() if made.home else None
        if row is None:
            found.setdefault(name, made)
        elif row[0]:
            database.execute("INSERT OR IGNORE INTO erasing VALUES (?)", (made.lamport,))
    return list(found.values())


def _post(made: Recorded) -> dict[str, Any]:
    """Return the columns of a new post."""
    event, lamport = made.event, made.lamport
    data, created = event.data, from_rfc3339(event.wall_clock)
    location = data.get("location")
    return {
        "id": lamport,
        "event_id": event.event_id,
        "author": event.author,
        "category": data["category"],
        "title": data["title"],
        "body": data["body"],
        "location": None if location is None else as_json(location),
        "tags": as_json(list(data.get("tags") or [])),
        "created_at": created,
        "expires_at": created + int(data["ttl_seconds"]) * 1000,
        "lamport": lamport,
        "home": made.home,
    }


def _update(database: sqlite3.Connection, post: int, recorded: Recorded, now: int) -> None:
    """Set the fields that no later change has set, also of a post that has ended."""
    if is_deleted(database, post, recorded):
        return
    sql = "SELECT ended_lamport IS NULL, updates, updated_at, set_by FROM post WHERE id = ?"
    current, updates, updated_at, text = database.execute(sql, (post,)).fetchone()
    event = recorded.event
    at, set_by = from_rfc3339(event.wall_clock), msgspec.json.decode(text)
    key = f"{int(event.data.get('revision', updates + 1)):07d} {at:015d} {event.event_id}"
    fields = {name: value for name, value in event.data["fields"].items() if key > set_by.get(name, "")}
    changes: dict[str, Any] = {name: fields[name] for name in ("category", "title", "body") if name in fields}
    if "location" in fields:
        changes["location"] = None if fields["location"] is None else as_json(fields["location"])
    if "tags" in fields:
        changes["tags"] = as_json(fields["tags"])
    if "ttl_seconds" in fields:
        changes["expires_at"] = at + int(fields["ttl_seconds"]) * 1000
    changes["updated_at"] = max(at, updated_at or 0)
    changes |= {"lamport": now, "set_by": as_json(set_by | dict.fromkeys(fields, key))}
    set_ = ", ".join(f"{name} = ?" for name in changes)
    text_changed = current and any(name in fields for name in _TEXTS)
    if text_changed:
        database.execute(_UNINDEX, (post,))
    database.execute(f"UPDATE post SET {set_}, updates = updates + 1 WHERE id = ?", (*changes.values(), post))
    if text_changed:
        database.execute(_INDEX, (post, post))
    remember(database, [(post, event, recorded.lamport)])


def _end(database: sqlite3.Connection, post: int, recorded: Recorded, now: int) -> None:
    if is_deleted(database, post, recorded):
        return
    sql = "SELECT ended_lamport IS NULL, end_key FROM post WHERE id = ?"
    current, earlier = database.execute(sql, (post,)).fetchone()
    event = recorded.event
    data, at = event.data, from_rfc3339(event.wall_clock)
    key = f"{at:015d} {event.event_id}"
    remember(database, [(post, event, recorded.lamport)])
    if not current and key >= earlier:
        return
    if current:
        database.execute(_UNINDEX, (post,))
    database.execute(
        "UPDATE post SET ended_lamport = ?, ended_reason = ?, ended_by = ?, ended_note = ?, ended_at = ?, "
        "end_key = ? WHERE id = ?",
        (now, data["reason"], event.author, data.get("note"), at, key, post),
    )


def _hide(database: sqlite3.Connection, post: int, recorded: Recorded, now: int) -> None:
    event = recorded.event
    if not is_deleted(database, post, recorded):
        row = (post, event.event_id, event.author, event.data["reason"], from_rfc3339(event.wall_clock))
        database.execute("INSERT OR IGNORE INTO hiding VALUES (?, ?, ?, ?, ?)", row)
        _settle_hiding(database, post, recorded, now)


def _unhide(
    database: sqlite3.Connection, post: int, recorded: Recorded, now: int, *, of_anybody: bool = True
) -> None:
    """Take back the named hidings; unless `of_anybody`, only those by the author of the event."""
    event = recorded.event
    if not is_deleted(database, post, recorded):
        sql = """
            INSERT INTO unhiding VALUES (?, ?, ?, ?)
            ON CONFLICT DO UPDATE SET of_anybody = max(of_anybody, excluded.of_anybody)"""
        named = [(post, hiding, event.author, of_anybody) for hiding in event.data["hidings"]]
        database.executemany(sql, named)
        _settle_hiding(database, post, recorded, now)


def _take_back_own(
    database: sqlite3.Connection, rows: Sequence[tuple[int, str]], recorded: Recorded, now: int
) -> None:
    """Apply an event of no moderator, which takes back what its author hid."""
    for post, _ in rows:
        sql = "SELECT 1 FROM hiding WHERE post = ? AND author = ?"
        if database.execute(sql, (post, recorded.event.author)).fetchone():
            _unhide(database, post, recorded, now, of_anybody=False)


def _apply_early_unhidings(database: sqlite3.Connection, rights: Rights, hidden: Event, now: int) -> None:
    """Apply the events by which the author of `hidden` takes it back, and which arrived before it."""
    sql = """
        SELECT lamport, event, home FROM waiting WHERE event_id = ?
        AND json_extract(event, '$.event_type') = ?
        AND json_extract(event, '$.author') = ? ORDER BY lamport"""
    values = (hidden.data["target_event_id"], UNHIDDEN, hidden.author)
    _again(database, rights, database.execute(sql, values).fetchall(), now)


def _reserve(database: sqlite3.Connection, post: int, recorded: Recorded, now: int) -> None:
    event = recorded.event
    if not is_deleted(database, post, recorded):
        note, at = event.data.get("note", ""), from_rfc3339(event.wall_clock)
        row = (post, event.event_id, event.author, note, at)
        database.execute("INSERT OR IGNORE INTO reservation VALUES (?, ?, ?, ?, ?)", row)
        database.execute("UPDATE post SET lamport = ?, reserved = 1 WHERE id = ?", (now, post))
        remember(database, [(post, event, recorded.lamport)])


def _step(database: sqlite3.Connection, post: int, recorded: Recorded, now: int) -> None:
    """Add a step; its reservation may arrive later."""
    event = recorded.event
    if not is_deleted(database, post, recorded):
        row = (post, event.data["reservation"], event.data["borrower"], event.data["step"])
        database.execute("INSERT OR IGNORE INTO loan_step VALUES (?, ?, ?, ?)", row)
        database.execute("UPDATE post SET lamport = ? WHERE id = ?", (now, post))
        remember(database, [(post, event, recorded.lamport)])


def _settle_hiding(database: sqlite3.Connection, post: int, recorded: Recorded, now: int) -> None:
    """Set whether the post is hidden, as the change of place `now`."""
    remember(database, [(post, recorded.event, recorded.lamport)])
    sql = """
        UPDATE post SET lamport = ?2, hidden_lamport = CASE WHEN hides THEN ?2 END
        FROM (SELECT EXISTS (SELECT 1 FROM standing_hiding WHERE post = ?1) AS hides)
        WHERE id = ?1 AND hides = (hidden_lamport IS NULL)"""
    database.execute(sql, (post, now))


def _delete(database: sqlite3.Connection, recorded: Recorded, rights: Rights) -> None:
    """Apply a deletion, which lists its posts and events itself.

    A log that is read later has no other record of them. The places in a deletion of another home are those
    of its own log: here all events of the post are erased, whichever it knew.
    """
    event, lamport = recorded.event, recorded.lamport
    at = from_rfc3339(event.wall_clock)
    for post in event.data["posts"]:
        if recorded.home and not rights(event, post["author"]):
            _wait(database, recorded, post["event_id"])
            continue
        sql = "SELECT id, deleted FROM post WHERE event_id = ? AND author = ?"
        row = database.execute(sql, (post["event_id"], post["author"])).fetchone()
        if row is None:
            first = database.execute(_STUB_ID).fetchone()[0] if recorded.home else int(post["lamport"])
            deleted = (first, post["event_id"], lamport, post["author"], at, at, lamport, event.author, at)
            database.execute(_INSERT_DELETED, deleted)
        elif not row[1]:
            database.execute(_UNINDEX, row[:1])
            database.execute(_EMPTIED, (lamport, lamport, event.author, at, row[0]))
            for table in ("hiding", "unhiding", "reservation", "loan_step"):
                database.execute(f"DELETE FROM {table} WHERE post = ?", row[:1])
        _erase_acts(database, recorded, post, None if row is None else row[0])
        # What others wrote about the post arrived first, and waits for a post that does not come any more.
        sql = """
            SELECT lamport, event, home FROM waiting WHERE event_id = ?
            AND json_extract(event, '$.event_type') != ? ORDER BY lamport"""
        rows = database.execute(sql, (post["event_id"], DELETED)).fetchall()
        _again(database, rights, rows, lamport)


def _erase_acts(
    database: sqlite3.Connection, recorded: Recorded, deleted: dict[str, Any], post: int | None
) -> None:
    """Have the events of a deleted post erased, and their client ids remembered."""
    acts = deleted["acts"]
    for act in acts if not recorded.home else ():
        database.execute("INSERT OR IGNORE INTO erased VALUES (?, ?, ?, ?, ?)", _erased(act))
        database.execute("DELETE FROM act WHERE lamport = ?", (act["lamport"],))
        database.execute("INSERT OR IGNORE INTO erasing VALUES (?)", (act["lamport"],))
    if recorded.home and post is not None:
        sql = "INSERT OR IGNORE INTO erased SELECT author, client_id, event_id, lamport, digest FROM act "
        database.execute(f"{sql} WHERE post = ?", (post,))
        database.execute("INSERT OR IGNORE INTO erasing SELECT lamport FROM act WHERE post = ?", (post,))
        database.execute("DELETE FROM act WHERE post = ?", (post,))
    gone = (deleted["event_id"], deleted["author"])
    sql = "SELECT lamport FROM waiting WHERE event_id = ? AND json_extract(event, '$.author') = ?"
    database.execute(f"INSERT OR IGNORE INTO erasing {sql}", gone)
    database.execute(f"DELETE FROM waiting WHERE lamport IN ({sql})", gone)


def _erased(act: dict[str, Any]) -> tuple[Any, ...]:
    return (act["author"], act["client_id"], act["event_id"], act["lamport"], act["digest"])


_CHANGES: Final[dict[str, Callable[[sqlite3.Connection, int, Recorded, int], None]]] = {
    UPDATED: _update,
    EXPIRED: _end,
    HIDDEN: _hide,
    UNHIDDEN: _unhide,
    RESERVED: _reserve,
    BORROWER: _step,
    LENDER: _step,
}
