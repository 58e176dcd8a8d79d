"""The view of the market: the state of the event log in SQLite, derived and rebuildable.

Every method blocks for as long as SQLite does; callers run them in a thread. All methods share one connection
under one lock.

See: docs/protocol/effects.md#event-sourced-effects.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from hearthnet.core import rfc3339
from hearthnet.service import Recorded
from hearthnet_market.database import DamagedView, empty, opened, recreated, unreadable
from hearthnet_market.projection import take
from hearthnet_market.queries import listing, ranked
from hearthnet_market.schemas import Erased, ListInput, PostState

_COLUMNS: Final = (
    "event_id, lamport, author, category, title, body, location, tags, created_at, expires_at, updated_at"
)
_ENDED: Final = "event_id, ended_lamport, ended_reason, ended_by, ended_note, ended_at, author"
_ACTS: Final = "SELECT lamport, event_id, author, client_id, digest FROM act WHERE post = ? ORDER BY lamport"
MOST_POSTS: Final = 200
MOST_ACTS: Final = 2000
"""Events listed by one deletion, which bounds the size of its own event."""


class View:
    """Current and ended posts, up to a place in the log.

    Queries are answered only by a complete view. One that is being derived again raises `DamagedView`,
    because its rows so far would look like a nearly empty market.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._path = path
        self._database = opened(path)
        self._whole = True

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._database.close()

    def follow(self, log: str, last: int) -> int:
        """Prepare to apply the events of `log`, whose last place is `last`.

        Returns the place of the last applied event. Rows of another log are dropped.
        """
        with self._changing():
            known, lamport = self._database.execute("SELECT log, lamport FROM place").fetchone()
            if known == log and lamport <= last:
                return int(lamport)
            self._whole = False
            empty(self._database)
            self._database.execute("UPDATE place SET lamport = 0, log = ?", (log,))
            return 0

    def apply(self, batch: list[Recorded]) -> None:
        """Apply a batch of events in one transaction; events applied before have no effect."""
        with self._changing():
            last = self._lamport()
            take(self._database, [recorded for recorded in batch if recorded.lamport > last])
            self._reach(batch[-1].lamport)

    def reached(self, log: str, last: int) -> None:
        """Record that `log` was read up to `last`: events that are missing there were erased."""
        with self._changing():
            if self._database.execute("SELECT log FROM place").fetchone()[0] == log:
                self._reach(last)

    def settle(self, log: str, last: int) -> None:
        """Mark the view as complete after `log` was read up to `last`.

        Raises:
            DamagedView: the view was recreated since.
        """
        with self._held():
            known, lamport = self._database.execute("SELECT log, lamport FROM place").fetchone()
            if known != log or lamport < last:
                raise DamagedView("it was damaged once more while it was derived")
            self._whole = True

    def current(self, wanted: ListInput, now_ms: int) -> tuple[list[dict[str, Any]], int]:
        """Return current posts, newest first, and the place of the log that they reflect.

        With `since_lamport`, the oldest change comes first. If there are more posts than the limit, the
        returned place is that of the last post, so that a call with it continues without a gap.
        """
        sql, values = listing(wanted, now_ms, _COLUMNS)
        with self._query():
            rows = self._database.execute(sql, [*values, wanted.limit]).fetchall()
            posts, lamport = [_post(row) for row in rows], self._lamport()
        cut = wanted.since_lamport and len(posts) == wanted.limit
        return posts, posts[-1]["lamport"] if cut else lamport

    def removed(self, since: int) -> list[dict[str, Any]]:
        """Return the ends, in order, of posts that existed at place `since` and ended after it."""
        sql = f"SELECT {_ENDED} FROM post WHERE ended_lamport > ? AND id <= ? ORDER BY ended_lamport"
        with self._query():
            return [_end(row) for row in self._database.execute(sql, (since, since))]

    def search(self, query: str, k: int, now_ms: int) -> tuple[list[dict[str, Any]], int]:
        """Return current posts that share a word with `query`, best first, each with `score`.

        A higher score is better.
        """
        found: list[dict[str, Any]] = []
        with self._query():
            for post, score in ranked(self._database, query):
                sql = f"SELECT {_COLUMNS} FROM post WHERE id = ? AND ended_lamport IS NULL AND expires_at > ?"
                found += [
                    _post(row) | {"score": score} for row in self._database.execute(sql, (post, now_ms))
                ]
                if len(found) == k:
                    break
            return found, self._lamport()

    def recent(self, limit: int, now_ms: int) -> list[tuple[str, str, str]]:
        """Return id, title and body of the newest current posts, newest last."""
        sql = """
            SELECT event_id, title, body FROM post WHERE ended_lamport IS NULL AND expires_at > ?
            ORDER BY lamport DESC LIMIT ?"""
        with self._query():
            return self._database.execute(sql, (now_ms, limit)).fetchall()[::-1]

    def chosen(self, event_ids: list[str], now_ms: int) -> dict[str, dict[str, Any]]:
        """Return those of the posts that are current, by their ids."""
        sql = f"""
            SELECT {_COLUMNS} FROM post WHERE event_id = ? AND ended_lamport IS NULL AND expires_at > ?"""
        with self._query():
            rows = [self._database.execute(sql, (one, now_ms)).fetchone() for one in event_ids]
            return {row[0]: _post(row) for row in rows if row is not None}

    def standing(self, event_id: str) -> tuple[PostState | None, int]:
        """Return the post or None, and the place of the log that this reflects."""
        sql = """
            SELECT author, lamport, updates, ended_lamport IS NULL FROM post
            WHERE event_id = ? AND NOT deleted"""
        with self._query():
            row = self._database.execute(sql, (event_id,)).fetchone()
            return None if row is None else PostState(row[0], row[1], row[2], bool(row[3])), self._lamport()

    def overdue(self, now_ms: int, limit: int) -> list[str]:
        """Return overdue posts that have not been ended."""
        sql = """
            SELECT event_id FROM post WHERE ended_lamport IS NULL AND expires_at <= ?
            ORDER BY expires_at LIMIT ?"""
        with self._query():
            return [row[0] for row in self._database.execute(sql, (now_ms, limit))]

    def written(self, author: str, event_id: str = "") -> tuple[list[dict[str, Any]], int, int]:
        """Return posts to delete with their events, oldest first.

        The posts are those of `author`, or the one with `event_id`. There are at most as many as one event
        can list. The other results are the number of further posts, and the place of the log that this
        reflects.
        """
        where = "event_id = ?" if event_id else "author = ?"
        found: list[dict[str, Any]] = []
        with self._query():
            rows = self._database.execute(
                f"SELECT id, event_id, author FROM post WHERE {where} AND NOT deleted ORDER BY id",
                (event_id or author,),
            ).fetchall()
            acts = 0
            for number, event, writer in rows[:MOST_POSTS]:
                if acts >= MOST_ACTS:
                    break
                listed = [
                    dict(zip(("lamport", "event_id", "author", "client_id", "digest"), act, strict=True))
                    for act in self._database.execute(_ACTS, (number,))
                ]
                acts += len(listed)
                found.append({"event_id": event, "lamport": number, "author": writer, "acts": listed})
            return found, len(rows) - len(found), self._lamport()

    def acts(self, author: str, event_id: str, after: int, limit: int) -> list[int]:
        """Return the places of events of one post, or of all events of `author`, after a place."""
        with self._query():
            if event_id:
                where, value = "post = (SELECT id FROM post WHERE event_id = ?)", event_id
            else:
                where, value = "author = ?", author
            sql = f"SELECT lamport FROM act WHERE {where} AND lamport > ? ORDER BY lamport LIMIT ?"
            return [row[0] for row in self._database.execute(sql, (value, after, limit))]

    def posts(self, event_ids: list[str]) -> list[dict[str, Any]]:
        """Return those of the posts that exist, each with its end if it has ended."""
        sql = f"SELECT {_COLUMNS}, {_ENDED} FROM post WHERE event_id = ? AND NOT deleted"
        found = []
        with self._query():
            for event_id in event_ids:
                for row in self._database.execute(sql, (event_id,)):
                    ended = _end(row[11:])
                    found.append(_post(row) | ({"end": ended} if ended["lamport"] else {}))
        return found

    def erased(self, author: str, client_id: str) -> Erased | None:
        """Return the erased event of that author and client id, or None."""
        sql = "SELECT event_id, lamport, digest FROM erased WHERE author = ? AND client_id = ?"
        with self._query():
            row = self._database.execute(sql, (author, client_id)).fetchone()
        return None if row is None else Erased(*row)

    def erasing(self, limit: int) -> list[int]:
        """Return places of deleted events that the log may still have."""
        with self._held():
            sql = "SELECT lamport FROM erasing ORDER BY lamport LIMIT ?"
            return [row[0] for row in self._database.execute(sql, (limit,))]

    def record_erased(self, lamports: list[int]) -> None:
        """Record that the log has erased these events, and remove their words from the file."""
        with self._held():
            with self._database:
                self._database.executemany(
                    "DELETE FROM erasing WHERE lamport = ?", [(one,) for one in lamports]
                )
            # Deleted words remain in the index until it is merged, and in the journal until it is truncated.
            with self._database:
                self._database.execute("INSERT INTO post_text (post_text) VALUES ('optimize')")
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Lock the database for one thread.

        Raises:
            DamagedView: its file was damaged, and was recreated empty.
        """
        with self._lock:
            try:
                yield
            except sqlite3.DatabaseError as error:
                if not unreadable(error):
                    raise
                self._whole = False
                self._database.close()
                self._database = recreated(self._path)
                raise DamagedView(str(error)) from error

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """As `_held`, in one transaction that excludes the service's other processes.

        They are excluded before the first read, so a value that was read is still valid when the result is
        written.
        """
        with self._held(), self._database:
            self._database.execute("BEGIN IMMEDIATE")
            yield

    @contextlib.contextmanager
    def _query(self) -> Iterator[None]:
        """As `_held`, for a query.

        Raises:
            DamagedView: the view is being derived again.
        """
        with self._held():
            if not self._whole:
                raise DamagedView("it is being derived anew")
            yield

    def _lamport(self) -> int:
        return int(self._database.execute("SELECT lamport FROM place").fetchone()[0])

    def _reach(self, lamport: int) -> None:
        self._database.execute("UPDATE place SET lamport = max(lamport, ?)", (lamport,))


def _post(row: tuple[Any, ...]) -> dict[str, Any]:
    event_id, lamport, principal, category, title, body, location, tags, created, expires, updated = row[:11]
    author, _, guest = principal.partition("/")
    return {
        "event_id": event_id,
        "lamport": lamport,
        "author": author,
        **({"guest": guest} if guest else {}),
        "category": category,
        "title": title,
        "body": body,
        "location": None if location is None else msgspec.json.decode(location),
        "tags": msgspec.json.decode(tags),
        "created_at": rfc3339(created),
        **({} if updated is None else {"updated_at": rfc3339(updated)}),
        "expires_at": rfc3339(expires),
    }


def _end(row: tuple[Any, ...]) -> dict[str, Any]:
    event_id, lamport, reason, principal, note, at, author = row
    by, _, guest = (principal or "").partition("/")
    moderated = by != author.partition("/")[0] and reason != "deleted"
    return {
        "event_id": event_id,
        "lamport": lamport,
        "reason": reason,
        "by": by,
        **({"guest": guest} if guest else {}),
        **({"moderated": True} if moderated else {}),
        **({"note": note} if note else {}),
        "at": rfc3339(at or 0),
    }
