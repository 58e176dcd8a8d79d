"""The database file of the view: its tables, and how it is opened or recreated.

The view is derived from the log, so a damaged file is repaired by making another one. A post's `id` is the
place in the log of the event that made it. Two authors can have posts with one `event_id`, since ids are
chosen where a post is made. The word index has no copy of the posts: its content is the view
`current_text`, which holds the current posts.
"""

from __future__ import annotations

import contextlib
import fcntl
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hearthnet_market.distances import add_function

_VERSION: Final = 7
_SCHEMA: Final = """
CREATE TABLE post (
  id INTEGER PRIMARY KEY, event_id TEXT NOT NULL, lamport INTEGER NOT NULL, author TEXT NOT NULL,
  category TEXT NOT NULL, title TEXT NOT NULL, body TEXT NOT NULL, location TEXT, tags TEXT NOT NULL,
  created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, updated_at INTEGER,
  updates INTEGER NOT NULL DEFAULT 0,
  ended_lamport INTEGER, ended_reason TEXT, ended_by TEXT, ended_note TEXT, ended_at INTEGER,
  deleted INTEGER NOT NULL DEFAULT 0, home TEXT NOT NULL DEFAULT '', set_by TEXT NOT NULL DEFAULT '{}',
  end_key TEXT NOT NULL DEFAULT '', hidden_lamport INTEGER,
  reserved INTEGER NOT NULL DEFAULT 0, UNIQUE (event_id, author)
) STRICT;
CREATE INDEX post_current ON post (lamport) WHERE ended_lamport IS NULL;
CREATE INDEX post_category ON post (category, id) WHERE ended_lamport IS NULL;
CREATE INDEX post_overdue ON post (expires_at) WHERE ended_lamport IS NULL;
CREATE INDEX post_ended ON post (ended_lamport) WHERE ended_lamport IS NOT NULL;
CREATE INDEX post_hidden ON post (hidden_lamport) WHERE hidden_lamport IS NOT NULL;
CREATE INDEX post_author ON post (author, id);
CREATE VIEW current_text AS SELECT id, title, body, tags FROM post WHERE ended_lamport IS NULL;
CREATE VIRTUAL TABLE post_text USING fts5 (
  title, body, tags, content = 'current_text', content_rowid = 'id', tokenize = 'porter unicode61'
);
CREATE TABLE act (
  lamport INTEGER PRIMARY KEY, post INTEGER NOT NULL, event_id TEXT NOT NULL, author TEXT NOT NULL,
  client_id TEXT NOT NULL, digest TEXT NOT NULL
) STRICT;
CREATE INDEX act_post ON act (post);
CREATE TABLE hiding (
  post INTEGER NOT NULL, event_id TEXT NOT NULL, author TEXT NOT NULL, reason TEXT NOT NULL,
  at INTEGER NOT NULL, PRIMARY KEY (post, event_id, author)
) STRICT, WITHOUT ROWID;
CREATE TABLE unhiding (
  post INTEGER NOT NULL, hiding TEXT NOT NULL, author TEXT NOT NULL, of_anybody INTEGER NOT NULL,
  PRIMARY KEY (post, hiding, author)
) STRICT, WITHOUT ROWID;
CREATE VIEW standing_hiding AS SELECT * FROM hiding WHERE NOT EXISTS (
  SELECT 1 FROM unhiding WHERE unhiding.post = hiding.post AND unhiding.hiding = hiding.event_id
  AND (unhiding.of_anybody OR unhiding.author = hiding.author)
);
CREATE TABLE reservation (
  post INTEGER NOT NULL, event_id TEXT NOT NULL, author TEXT NOT NULL, note TEXT NOT NULL,
  at INTEGER NOT NULL, PRIMARY KEY (post, event_id, author)
) STRICT, WITHOUT ROWID;
CREATE TABLE loan_step (
  post INTEGER NOT NULL, reservation TEXT NOT NULL, borrower TEXT NOT NULL, step TEXT NOT NULL,
  PRIMARY KEY (post, reservation, borrower, step)
) STRICT, WITHOUT ROWID;
CREATE TABLE erased (
  author TEXT NOT NULL, client_id TEXT NOT NULL, event_id TEXT NOT NULL, lamport INTEGER NOT NULL,
  digest TEXT NOT NULL, PRIMARY KEY (author, client_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE waiting (
  lamport INTEGER PRIMARY KEY, event_id TEXT NOT NULL, home TEXT NOT NULL, event TEXT NOT NULL
) STRICT;
CREATE INDEX waiting_event ON waiting (event_id);
CREATE TABLE erasing (lamport INTEGER PRIMARY KEY) STRICT;
CREATE TABLE place (lamport INTEGER NOT NULL, log TEXT NOT NULL) STRICT;
INSERT INTO place VALUES (0, '');
"""
_TABLES: Final = (
    "post",
    "act",
    "hiding",
    "unhiding",
    "reservation",
    "loan_step",
    "erased",
    "erasing",
    "waiting",
)
_UNREADABLE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


class DamagedView(Exception):
    """Raised when the view has lost rows: its file was damaged, or its log was replaced.

    The file was recreated empty, and gives no answers until it is derived again.
    """


def unreadable(error: sqlite3.DatabaseError) -> bool:
    """Return whether `error` means a damaged file.

    The low byte of SQLite's error code says so; the rest tells in which part the damage was found.
    """
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _UNREADABLE


def opened(path: Path) -> sqlite3.Connection:
    """Open the view at `path`, or recreate it if it is damaged or of another version."""
    with locked(path):
        try:
            return _connect(path)
        except sqlite3.DatabaseError as error:
            if not unreadable(error):
                raise
            return _recreated(path)


def recreated(path: Path) -> sqlite3.Connection:
    """Replace the view at `path` by an empty one and open it."""
    with locked(path):
        return _recreated(path)


def empty(database: sqlite3.Connection) -> None:
    """Delete all rows that are derived from the log."""
    database.execute("INSERT INTO post_text (post_text) VALUES ('delete-all')")
    for table in _TABLES:
        database.execute(f"DELETE FROM {table}")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a database file against other processes: SQLite does not wait if two create it at once."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _recreated(path: Path) -> sqlite3.Connection:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    return _connect(path)


def _connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, check_same_thread=False)
    add_function(database)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("PRAGMA secure_delete = ON")
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
    return _recreated(path)
