"""The view of the market: what the event log says, in SQLite, derived and rebuildable (architecture.md).

Every method blocks for as long as SQLite does; callers run them in a thread. One connection, one lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from hearthnet.service.events import Event, Recorded
from hearthnet.times import from_rfc3339, rfc3339
from hearthnet_market.posts import CREATED, EXPIRED, ListInput

_VERSION: Final = 2
_SCHEMA: Final = """
CREATE TABLE post (
  id INTEGER PRIMARY KEY, event_id TEXT NOT NULL UNIQUE, lamport INTEGER NOT NULL, author TEXT NOT NULL,
  category TEXT NOT NULL, title TEXT NOT NULL, body TEXT NOT NULL, location TEXT, tags TEXT NOT NULL,
  created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, ended_lamport INTEGER
) STRICT;
CREATE INDEX post_current ON post (lamport) WHERE ended_lamport IS NULL;
CREATE INDEX post_ended ON post (ended_lamport) WHERE ended_lamport IS NOT NULL;
CREATE VIRTUAL TABLE post_text USING fts5 (title, body, tags, tokenize = 'porter unicode61');
CREATE TABLE place (lamport INTEGER NOT NULL, log TEXT NOT NULL) STRICT;
INSERT INTO place VALUES (0, '');
"""
_COLUMNS: Final = "event_id, lamport, author, category, title, body, location, tags, created_at, expires_at"
_UNREADABLE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_WORD: Final = re.compile(r"\w+")


class Damaged(Exception):
    """The view lacks what it had: its file was no database any more, or its log is another one.

    It was made anew, empty, and says nothing until it is derived again.
    """


class View:
    """The posts that are current, and what ended, up to a place in the log.

    Questions are answered by a view that is whole. One that is being derived anew raises `Damaged`: what it
    has so far looks like a market with hardly anything in it.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._path = path
        self._database = _open(path)
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
        with self._held(), self._database:
            known, lamport = self._database.execute("SELECT log, lamport FROM place").fetchone()
            if known == log and lamport <= last:
                return int(lamport)
            self._whole = False
            self._database.execute("DELETE FROM post")
            self._database.execute("DELETE FROM post_text")
            self._database.execute("UPDATE place SET lamport = 0, log = ?", (log,))
            return 0

    def apply(self, batch: list[Recorded]) -> None:
        """Takes in events in the order of the log, all or none; those taken in before change nothing."""
        with self._held(), self._database:
            last = self._lamport()
            for recorded in batch:
                if recorded.lamport > last:
                    self._take(recorded.event, recorded.lamport)
            self._database.execute("UPDATE place SET lamport = max(lamport, ?)", (batch[-1].lamport,))

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

        Whoever asks what came after a place gets the oldest first, and the place of the last one where there
        are more: asked again from there, nothing is left out.
        """
        where = ["ended_lamport IS NULL", "expires_at > ?", "lamport > ?"]
        values: list[int | str] = [now_ms, wanted.since_lamport]
        if wanted.category is not None:
            where.append("category = ?")
            values.append(wanted.category)
        for tag in wanted.tags:
            where.append("EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?)")
            values.append(tag)
        order = "ASC" if wanted.since_lamport else "DESC"
        sql = f"SELECT {_COLUMNS} FROM post WHERE {' AND '.join(where)} ORDER BY lamport {order} LIMIT ?"
        with self._asked():
            rows = self._database.execute(sql, [*values, wanted.limit]).fetchall()
            posts, lamport = [_post(row) for row in rows], self._lamport()
        cut = wanted.since_lamport and len(posts) == wanted.limit
        return posts, posts[-1]["lamport"] if cut else lamport

    def removed(self, since: int) -> list[str]:
        """The posts that ended after place `since` and were there before."""
        sql = "SELECT event_id FROM post WHERE ended_lamport > ? AND lamport <= ? ORDER BY ended_lamport"
        with self._asked():
            return [row[0] for row in self._database.execute(sql, (since, since))]

    def search(self, query: str, k: int, now_ms: int) -> tuple[list[dict[str, Any]], int]:
        """Current posts that share a word with `query`, best first, each with `score` (higher is better)."""
        words = " OR ".join(f'"{word}"' for word in dict.fromkeys(_WORD.findall(query.lower())))
        sql = f"""
            SELECT {_COLUMNS}, score FROM post JOIN (
              SELECT rowid AS id, -bm25(post_text, 3.0, 1.0, 2.0) AS score
              FROM post_text WHERE post_text MATCH ?
            ) USING (id)
            WHERE ended_lamport IS NULL AND expires_at > ? ORDER BY score DESC, lamport DESC LIMIT ?"""
        with self._asked():
            rows = self._database.execute(sql, (words, now_ms, k)).fetchall() if words else []
            return [_post(row) | {"score": row[-1]} for row in rows], self._lamport()

    def author(self, event_id: str) -> str | None:
        """Who wrote the post that is still current, None where there is none."""
        sql = "SELECT author FROM post WHERE event_id = ? AND ended_lamport IS NULL"
        with self._asked():
            row = self._database.execute(sql, (event_id,)).fetchone()
        return None if row is None else str(row[0])

    def overdue(self, now_ms: int, limit: int) -> list[str]:
        """Posts past their time that nobody ended yet."""
        sql = """
            SELECT event_id FROM post WHERE ended_lamport IS NULL AND expires_at <= ?
            ORDER BY lamport LIMIT ?"""
        with self._asked():
            return [row[0] for row in self._database.execute(sql, (now_ms, limit))]

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """The database, for one thread; `Damaged` where its file was found to be none."""
        with self._lock:
            try:
                yield
            except sqlite3.DatabaseError as error:
                if not _unreadable(error):
                    raise
                self._whole = False
                self._database.close()
                with _alone(self._path):
                    self._database = _anew(self._path)
                raise Damaged(str(error)) from error

    @contextlib.contextmanager
    def _asked(self) -> Iterator[None]:
        """As `_held`, for a question."""
        with self._held():
            if not self._whole:
                raise Damaged("it is being derived anew")
            yield

    def _lamport(self) -> int:
        return int(self._database.execute("SELECT lamport FROM place").fetchone()[0])

    def _take(self, event: Event, lamport: int) -> None:
        if event.event_type == CREATED:
            self._create(event, lamport)
        elif event.event_type == EXPIRED:
            self._end(str(event.data["target_event_id"]), lamport)

    def _create(self, event: Event, lamport: int) -> None:
        data, created = event.data, from_rfc3339(event.wall_clock)
        location, tags = data.get("location"), list(data.get("tags") or [])
        row = self._database.execute(
            f"INSERT INTO post ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                event.event_id,
                lamport,
                event.author,
                data["category"],
                data["title"],
                data["body"],
                None if location is None else msgspec.json.encode(location).decode(),
                msgspec.json.encode(tags).decode(),
                created,
                created + int(data["ttl_seconds"]) * 1000,
            ),
        )
        self._database.execute(
            "INSERT INTO post_text (rowid, title, body, tags) VALUES (?, ?, ?, ?)",
            (row.lastrowid, data["title"], data["body"], " ".join(tags)),
        )

    def _end(self, event_id: str, lamport: int) -> None:
        sql = "UPDATE post SET ended_lamport = ? WHERE event_id = ? AND ended_lamport IS NULL RETURNING id"
        for row in self._database.execute(sql, (lamport, event_id)).fetchall():
            self._database.execute("DELETE FROM post_text WHERE rowid = ?", row)


def _unreadable(error: sqlite3.DatabaseError) -> bool:
    """Whether the file is damaged; the low byte says so, whatever part of it was found to be."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _UNREADABLE


def _open(path: Path) -> sqlite3.Connection:
    """The view at `path`; one that is damaged or of another version is derived anew from the log."""
    with _alone(path):
        try:
            return _connect(path)
        except sqlite3.DatabaseError as error:
            if not _unreadable(error):
                raise
            return _anew(path)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process of the service after the other: SQLite does not wait where two make the same file."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _anew(path: Path) -> sqlite3.Connection:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    return _connect(path)


def _connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, check_same_thread=False)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            database.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
        sound = database.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
    except BaseException:
        database.close()
        raise
    if version in (0, _VERSION) and sound:
        return database
    database.close()
    return _anew(path)


def _post(row: tuple[Any, ...]) -> dict[str, Any]:
    event_id, lamport, principal, category, title, body, location, tags, created, expires = row[:10]
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
        "expires_at": rfc3339(expires),
    }
