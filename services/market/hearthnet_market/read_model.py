"""The view of the market: the state of the event log in SQLite, derived and rebuildable.

Every method blocks for as long as SQLite does; callers run them in a thread. All methods share one connection
under one lock.

See: docs/protocol/effects.md#event-sourced-effects.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

from hearthnet.service import Recorded
from hearthnet_market.database import DamagedView, empty, opened, recreated, unreadable
from hearthnet_market.distances import with_km
from hearthnet_market.loan_states import Loan
from hearthnet_market.projection import Rights, apply_waiting, take
from hearthnet_market.queries import listing, ranked
from hearthnet_market.schemas import Erased, Hiding, ListInput, PostState
from hearthnet_market.view_rows import (
    COLUMNS,
    ENDED,
    HIDINGS,
    LOANS,
    end_of,
    hiding_of,
    loans_in,
    post_of,
    shown_loans,
)

_log = logging.getLogger(__name__)
_SHOWN: Final = "ended_lamport IS NULL AND hidden_lamport IS NULL AND expires_at > ?"
_ACTS: Final = "SELECT lamport, event_id, author, client_id, digest FROM act WHERE post = ? ORDER BY lamport"
MOST_POSTS: Final = 200
MOST_ACTS: Final = 1400
"""Events listed by one deletion, with those of one more post, so that other homes take in its own event."""


class View:
    """Current and ended posts, up to a place in the log.

    Queries are answered only by a complete view. One that is being derived again raises `DamagedView`,
    because its rows so far would look like a nearly empty market.
    """

    def __init__(self, path: Path, rights: Rights = lambda event, author: False) -> None:
        """Open the view at `path`; `rights` tells whether an event of another home may change a post."""
        self._rights = rights
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
        """Apply a batch of events in one transaction; events applied before have no effect.

        One that cannot be applied is logged and passed over: it comes from another home, and would end the
        market here.
        """
        with self._changing():
            last = self._lamport()
            new = [recorded for recorded in batch if recorded.lamport > last]
            if not self._taken(new):
                for recorded in new:
                    if not self._taken([recorded]):
                        _log.error("the event at %d cannot be applied, and has no effect", recorded.lamport)
            self._reach(batch[-1].lamport)

    def _taken(self, batch: list[Recorded]) -> bool:
        """Apply events, all or none, and return whether they were."""
        self._database.execute("SAVEPOINT batch")
        try:
            take(self._database, batch, self._rights)
        except Exception as error:
            if isinstance(error, sqlite3.Error) and not _is_about_data(error):
                raise
            _log.info("%d events are not applied together", len(batch), exc_info=True)
        else:
            self._database.execute("RELEASE batch")
            return True
        self._database.execute("ROLLBACK TO batch")
        self._database.execute("RELEASE batch")
        return False

    def retry(self) -> None:
        """Apply changes of other homes that waited for the right to be made."""
        with self._changing():
            apply_waiting(self._database, self._rights, self._lamport())

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

    def current(
        self, wanted: ListInput, now_ms: int, without: Collection[str] = ()
    ) -> tuple[list[dict[str, Any]], int]:
        """Return current posts, newest first, and the place of the log that they reflect.

        With `near`, the nearest comes first. Posts of the authors in `without` are left out.

        With `since_lamport`, the oldest change comes first. If there are more posts than the limit, the
        returned place is that of the last post, so that a call with it continues without a gap.
        """
        sql, values = listing(wanted, now_ms, COLUMNS, without)
        with self._query():
            rows = self._database.execute(sql, [*values, wanted.limit]).fetchall()
            posts, lamport = with_km(map(self._post, rows), wanted.near), self._lamport()
        cut = wanted.since_lamport and len(posts) == wanted.limit
        return posts, posts[-1]["lamport"] if cut else lamport

    def removed(self, since: int) -> list[dict[str, Any]]:
        """Return the ends, in order, of posts that existed at place `since` and ended after it."""
        sql = (
            f"SELECT {ENDED} FROM post WHERE ended_lamport > ? AND id BETWEEN 1 AND ? ORDER BY ended_lamport"
        )
        with self._query():
            return [end_of(row) for row in self._database.execute(sql, (since, since))]

    def hidden(self, since: int) -> list[dict[str, Any]]:
        """Return the hidings, in order, of posts that existed at place `since` and were hidden after it."""
        sql = """
            SELECT id, event_id FROM post WHERE hidden_lamport > ? AND ended_lamport IS NULL
            AND id BETWEEN 1 AND ? ORDER BY hidden_lamport"""
        with self._query():
            rows = self._database.execute(sql, (since, since)).fetchall()
            return [hiding for post, event_id in rows for hiding in self._hidings(post, event_id)]

    def search(
        self, query: str, k: int, now_ms: int, without: Collection[str] = ()
    ) -> tuple[list[dict[str, Any]], int]:
        """Return current posts that share a word with `query`, best first, each with `score`.

        A higher score is better. Posts of the authors in `without` are left out.
        """
        found: list[dict[str, Any]] = []
        with self._query():
            for post, score in ranked(self._database, query):
                sql = f"SELECT {COLUMNS} FROM post WHERE id = ? AND {_SHOWN}"
                rows = self._database.execute(sql, (post, now_ms))
                found += [self._post(row) | {"score": score} for row in rows if row[2] not in without]
                if len(found) == k:
                    break
            return found, self._lamport()

    def recent(self, limit: int, now_ms: int) -> list[tuple[str, str, str]]:
        """Return id, title and body of the newest current posts, newest last."""
        sql = f"SELECT event_id, title, body FROM post WHERE {_SHOWN} ORDER BY lamport DESC LIMIT ?"
        with self._query():
            return self._database.execute(sql, (now_ms, limit)).fetchall()[::-1]

    def chosen(
        self, event_ids: list[str], now_ms: int, without: Collection[str] = ()
    ) -> dict[str, dict[str, Any]]:
        """Return those of the posts that are current and not of authors in `without`, by their ids."""
        sql = f"""
            SELECT {COLUMNS} FROM post WHERE event_id = ? AND {_SHOWN}"""
        with self._query():
            rows = [self._database.execute(sql, (one, now_ms)).fetchone() for one in event_ids]
            return {row[0]: self._post(row) for row in rows if row is not None and row[2] not in without}

    def standing(self, event_id: str, mine: Collection[str] = ()) -> tuple[PostState | None, int]:
        """Return the post or None, and the place of the log that this reflects.

        Of several with that id it is the one of an author in `mine`.
        """
        sql = f"""
            SELECT author, lamport, updates, ended_lamport IS NULL, category, id FROM post
            WHERE event_id = ? AND NOT deleted
            ORDER BY author IN ({", ".join("?" * len(mine))}) DESC, id LIMIT 1"""
        with self._query():
            row = self._database.execute(sql, (event_id, *mine)).fetchone()
            if row is None:
                return None, self._lamport()
            hidings = tuple(Hiding(*one[:2]) for one in self._database.execute(HIDINGS, row[5:]))
            state = PostState(row[0], row[1], row[2], bool(row[3]), hidings, row[4], self._loans(row[5]))
            return state, self._lamport()

    def overdue(self, now_ms: int, limit: int) -> list[str]:
        """Return overdue posts of this home that have not been ended; other homes end theirs."""
        sql = """
            SELECT event_id FROM post WHERE ended_lamport IS NULL AND expires_at <= ? AND home = ''
            ORDER BY expires_at LIMIT ?"""
        with self._query():
            return [row[0] for row in self._database.execute(sql, (now_ms, limit))]

    def written(self, authors: Collection[str], event_id: str = "") -> tuple[list[dict[str, Any]], int, int]:
        """Return posts to delete with their events, oldest first.

        The posts are those of `authors`, or the one with `event_id`. There are at most as many as one event
        can list. The other results are the number of further posts, and the place of the log that this
        reflects.
        """
        where, values = _selected("event_id = ?", event_id, authors)
        found: list[dict[str, Any]] = []
        with self._query():
            rows = self._database.execute(
                f"SELECT id, event_id, author FROM post WHERE {where} AND NOT deleted ORDER BY id",
                values,
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

    def acts(self, authors: Collection[str], event_id: str, after: int, limit: int) -> list[int]:
        """Return the places of events of one post, or of all events of `authors`, after a place."""
        where, values = _selected("post IN (SELECT id FROM post WHERE event_id = ?)", event_id, authors)
        sql = f"SELECT lamport FROM act WHERE {where} AND lamport > ? ORDER BY lamport LIMIT ?"
        with self._query():
            return [row[0] for row in self._database.execute(sql, (*values, after, limit))]

    def posts(self, event_ids: list[str]) -> list[dict[str, Any]]:
        """Return those of the posts that exist, each with its end if it has ended."""
        sql = f"SELECT {COLUMNS}, {ENDED} FROM post WHERE event_id = ? AND NOT deleted"
        found = []
        with self._query():
            for event_id in event_ids:
                for row in self._database.execute(sql, (event_id,)):
                    ended = end_of(row[14:])
                    found.append(self._post(row) | ({"end": ended} if ended["lamport"] else {}))
        return found

    def erased(self, authors: Collection[str], client_id: str) -> Erased | None:
        """Return the erased event of one of these authors and that client id, or None."""
        marks = ", ".join("?" for _ in authors)
        sql = f"SELECT event_id, lamport, digest FROM erased WHERE author IN ({marks}) AND client_id = ?"
        with self._query():
            row = self._database.execute(sql, (*authors, client_id)).fetchone()
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

    def _post(self, row: tuple[Any, ...]) -> dict[str, Any]:
        """Return the post of a row of `COLUMNS`, with its hidings and reservations if there are any."""
        post = post_of(row)
        number, hidden, reserved = row[11:14]
        if hidden is not None:
            post["hidden"] = self._hidings(number, row[0])
        if reserved:
            post["loans"] = shown_loans(self._loans(number))
        return post

    def _loans(self, post: int) -> tuple[Loan, ...]:
        return loans_in(self._database.execute(LOANS, (post,)))

    def _hidings(self, post: int, event_id: str) -> list[dict[str, Any]]:
        return [hiding_of(event_id, row) for row in self._database.execute(HIDINGS, (post,))]

    def _lamport(self) -> int:
        return int(self._database.execute("SELECT lamport FROM place").fetchone()[0])

    def _reach(self, lamport: int) -> None:
        self._database.execute("UPDATE place SET lamport = max(lamport, ?)", (lamport,))


def _selected(of_one: str, event_id: str, authors: Collection[str]) -> tuple[str, tuple[str, ...]]:
    """Return the condition for the post `event_id`, or without one for those of `authors`, and its values."""
    if event_id:
        return of_one, (event_id,)
    return f"author IN ({', '.join('?' * len(authors))})", tuple(authors)


def _is_about_data(error: sqlite3.Error) -> bool:
    """Return whether the values are at fault, and not the database or its disk."""
    if isinstance(error, sqlite3.ProgrammingError):
        return True
    code = error.sqlite_errorcode & 0xFF
    values = (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_RANGE)
    return code in values or (code == sqlite3.SQLITE_ERROR and "JSON" in str(error))
