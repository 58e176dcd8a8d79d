"""The view of the market: what the event log says, in SQLite, derived and rebuildable.

Every method blocks for as long as SQLite does; callers run them in a thread. One connection, one lock.

See: docs/protocol/effects.md#event-sourced-effects.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from hearthnet.service.events import Recorded
from hearthnet.times import rfc3339
from hearthnet_market.database import Damaged, empty, made_anew, opened, unreadable
from hearthnet_market.listing import listing
from hearthnet_market.posts import Erased, ListInput, Standing
from hearthnet_market.ranking import ranked
from hearthnet_market.taking import take

__all__ = ["Damaged", "View"]

_COLUMNS: Final = (
    "event_id, lamport, author, category, title, body, location, tags, created_at, expires_at, updated_at"
)
_ENDED: Final = "event_id, ended_lamport, ended_reason, ended_by, ended_note, ended_at, author"
_WORD: Final = re.compile(r"\w+")
_MOST_WORDS: Final = 32
MOST_POSTS: Final = 200
MOST_ACTS: Final = 2000
"""How much one event of deletion takes with it, so that it stays small."""


class View:
    """The posts that are current, and what ended, up to a place in the log.

    Questions are answered by a view that is whole. One that is being derived anew raises `Damaged`: what it
    has so far looks like a market with hardly anything in it.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._path = path
        self._database = opened(path)
        self._whole = True

    def close(self) -> None:
        """Closes the database."""
        with self._lock:
            self._database.close()

    def lamport(self) -> int:
        """The last event taken in."""
        with self._held():
            return self._lamport()

    def follow(self, log: str, last: int) -> int:
        """The last event taken in of `log`, which has `last`; what another log said is dropped."""
        with self._changing():
            known, lamport = self._database.execute("SELECT log, lamport FROM place").fetchone()
            if known == log and lamport <= last:
                return int(lamport)
            self._whole = False
            empty(self._database)
            self._database.execute("UPDATE place SET lamport = 0, log = ?", (log,))
            return 0

    def apply(self, batch: list[Recorded]) -> None:
        """Takes in events in the order of the log, all or none; those taken in before change nothing."""
        with self._changing():
            last = self._lamport()
            take(self._database, [recorded for recorded in batch if recorded.lamport > last])
            self._reach(batch[-1].lamport)

    def reached(self, log: str, last: int) -> None:
        """There is no more event of `log` up to `last`: what is not there was erased."""
        with self._changing():
            if self._database.execute("SELECT log FROM place").fetchone()[0] == log:
                self._reach(last)

    def settle(self, log: str, last: int) -> None:
        """`log` was read up to `last`: a view that followed it all the way is whole.

        Raises `Damaged` for one that did not, since it was made anew meanwhile.
        """
        with self._held():
            known, lamport = self._database.execute("SELECT log, lamport FROM place").fetchone()
            if known != log or lamport < last:
                raise Damaged("it was damaged once more while it was derived")
            self._whole = True

    def current(self, wanted: ListInput, now_ms: int) -> tuple[list[dict[str, Any]], int]:
        """Current posts, newest first, and the place up to which they are true.

        Whoever asks what came after a place gets the oldest change first, and the place of the last one where
        there are more: asked again from there, nothing is left out.
        """
        sql, values = listing(wanted, now_ms, _COLUMNS)
        with self._asked():
            rows = self._database.execute(sql, [*values, wanted.limit]).fetchall()
            posts, lamport = [_post(row) for row in rows], self._lamport()
        cut = wanted.since_lamport and len(posts) == wanted.limit
        return posts, posts[-1]["lamport"] if cut else lamport

    def removed(self, since: int) -> list[dict[str, Any]]:
        """How the posts ended that ended after place `since` and were there before, in that order."""
        sql = f"SELECT {_ENDED} FROM post WHERE ended_lamport > ? AND id <= ? ORDER BY ended_lamport"
        with self._asked():
            return [_end(row) for row in self._database.execute(sql, (since, since))]

    def search(self, query: str, k: int, now_ms: int) -> tuple[list[dict[str, Any]], int]:
        """Current posts that share a word with `query`, best first, each with `score` (higher is better)."""
        words = _words(query)
        found: list[dict[str, Any]] = []
        with self._asked():
            for post, score in ranked(self._database, words):
                sql = f"SELECT {_COLUMNS} FROM post WHERE id = ? AND ended_lamport IS NULL AND expires_at > ?"
                found += [
                    _post(row) | {"score": score} for row in self._database.execute(sql, (post, now_ms))
                ]
                if len(found) == k:
                    break
            return found, self._lamport()

    def recent(self, limit: int, now_ms: int) -> list[tuple[str, str, str]]:
        """Id, title and body of the newest current posts, newest last."""
        sql = """
            SELECT event_id, title, body FROM post WHERE ended_lamport IS NULL AND expires_at > ?
            ORDER BY lamport DESC LIMIT ?"""
        with self._asked():
            return self._database.execute(sql, (now_ms, limit)).fetchall()[::-1]

    def chosen(self, event_ids: list[str], now_ms: int) -> dict[str, dict[str, Any]]:
        """Those of the posts that are current, by their ids."""
        sql = f"""
            SELECT {_COLUMNS} FROM post WHERE event_id = ? AND ended_lamport IS NULL AND expires_at > ?"""
        with self._asked():
            rows = [self._database.execute(sql, (one, now_ms)).fetchone() for one in event_ids]
            return {row[0]: _post(row) for row in rows if row is not None}

    def standing(self, event_id: str) -> tuple[Standing | None, int]:
        """The post as the log has it, None where there is none, and the place up to which that is true."""
        sql = """
            SELECT author, lamport, updates, ended_lamport IS NULL FROM post
            WHERE event_id = ? AND NOT deleted"""
        with self._asked():
            row = self._database.execute(sql, (event_id,)).fetchone()
            return None if row is None else Standing(row[0], row[1], row[2], bool(row[3])), self._lamport()

    def overdue(self, now_ms: int, limit: int) -> list[str]:
        """Posts past their time that nobody ended yet."""
        sql = """
            SELECT event_id FROM post WHERE ended_lamport IS NULL AND expires_at <= ?
            ORDER BY expires_at LIMIT ?"""
        with self._asked():
            return [row[0] for row in self._database.execute(sql, (now_ms, limit))]

    def written(self, author: str, event_id: str = "") -> tuple[list[dict[str, Any]], int, int]:
        """What there is to delete of `author`: posts with their events, oldest first and at most so many that
        one event lists them; how many more there are; and the place up to which that is true.
        """
        where = "event_id = ?" if event_id else "author = ?"
        found: list[dict[str, Any]] = []
        with self._asked():
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
                    for act in self._acts("post = ?", number)
                ]
                acts += len(listed)
                found.append({"event_id": event, "lamport": number, "author": writer, "acts": listed})
            return found, len(rows) - len(found), self._lamport()

    def acts(self, author: str, event_id: str, after: int, limit: int) -> list[int]:
        """The places of the events of one post, or of all that `author` did, after a place."""
        with self._asked():
            if event_id:
                where, value = "post = (SELECT id FROM post WHERE event_id = ?)", event_id
            else:
                where, value = "author = ?", author
            sql = f"SELECT lamport FROM act WHERE {where} AND lamport > ? ORDER BY lamport LIMIT ?"
            return [row[0] for row in self._database.execute(sql, (value, after, limit))]

    def posts(self, event_ids: list[str]) -> list[dict[str, Any]]:
        """These posts, with how they ended where they did; those that are not there left out."""
        sql = f"SELECT {_COLUMNS}, {_ENDED} FROM post WHERE event_id = ? AND NOT deleted"
        found = []
        with self._asked():
            for event_id in event_ids:
                for row in self._database.execute(sql, (event_id,)):
                    ended = _end(row[11:])
                    found.append(_post(row) | ({"end": ended} if ended["lamport"] else {}))
        return found

    def erased(self, author: str, client_id: str) -> Erased | None:
        """The event of that author and client id that was erased, None where none was."""
        sql = "SELECT event_id, lamport, digest FROM erased WHERE author = ? AND client_id = ?"
        with self._asked():
            row = self._database.execute(sql, (author, client_id)).fetchone()
        return None if row is None else Erased(*row)

    def erasing(self, limit: int) -> list[int]:
        """Places of events that are deleted and may lie in the log still."""
        with self._held():
            sql = "SELECT lamport FROM erasing ORDER BY lamport LIMIT ?"
            return [row[0] for row in self._database.execute(sql, (limit,))]

    def gone(self, lamports: list[int]) -> None:
        """These events are off the log, and nothing of their words stays in the file of the view."""
        with self._held():
            with self._database:
                self._database.executemany(
                    "DELETE FROM erasing WHERE lamport = ?", [(one,) for one in lamports]
                )
            # Words that were deleted lie in the index until it is merged, and in the journal until it is cut.
            with self._database:
                self._database.execute("INSERT INTO post_text (post_text) VALUES ('optimize')")
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """The database, for one thread; `Damaged` where its file was found to be none."""
        with self._lock:
            try:
                yield
            except sqlite3.DatabaseError as error:
                if not unreadable(error):
                    raise
                self._whole = False
                self._database.close()
                self._database = made_anew(self._path)
                raise Damaged(str(error)) from error

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """As `_held`, in one transaction, before whose first look the other processes of the service are held
        off: what was read is still so when it is written.
        """
        with self._held(), self._database:
            self._database.execute("BEGIN IMMEDIATE")
            yield

    @contextlib.contextmanager
    def _asked(self) -> Iterator[None]:
        """As `_held`, for a question."""
        with self._held():
            if not self._whole:
                raise Damaged("it is being derived anew")
            yield

    def _acts(self, where: str, value: int) -> list[tuple[Any, ...]]:
        sql = f"SELECT lamport, event_id, author, client_id, digest FROM act WHERE {where} ORDER BY lamport"
        return self._database.execute(sql, (value,)).fetchall()

    def _lamport(self) -> int:
        return int(self._database.execute("SELECT lamport FROM place").fetchone()[0])

    def _reach(self, lamport: int) -> None:
        self._database.execute("UPDATE place SET lamport = max(lamport, ?)", (lamport,))


def _words(query: str) -> list[str]:
    return list(dict.fromkeys(_WORD.findall(query.lower())))[:_MOST_WORDS]


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
