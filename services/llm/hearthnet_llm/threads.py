"""Transcripts kept for callers that send only new messages.

A caller that names a thread gives in `thread_length` the number of messages that it believes to be stored; 0
begins the thread (again) with a whole conversation. If the number differs from the stored one, the error is
`thread_missing`, and the caller sends the whole conversation with 0. Only completed turns are stored; a
principal can only use its own threads.

A row of the file is kept for 24 h after its last use. The size of a thread, the number of threads of a
principal and the total size are bounded; the least recently used threads are deleted first. A lost thread
costs one longer request, so a damaged file is moved aside and a new one begun.

See: docs/models.md#conversations.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from hearthnet import HearthNetError
from hearthnet.core import now_ms
from hearthnet_llm.interface.request import ChatRequest, Message

_SWEEP_SECONDS: Final = 3600.0
_PLACE: Final = re.compile(r"/input/messages/(\d+)")
_log = logging.getLogger(__name__)
T = TypeVar("T")
FILE: Final = "threads.db"
RETENTION_MS: Final = 24 * 3600 * 1000
MOST_THREADS: Final = 200
"""Threads of one principal."""
MOST_THREAD_BYTES: Final = 2 << 20
MOST_BYTES: Final = 128 << 20
_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_FILE_VERSION: Final = 1
_BUSY_SECONDS: Final = 5.0
_TABLES: Final = (
    """
CREATE TABLE threads (
    principal TEXT NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    used_ms INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    messages BLOB NOT NULL,
    PRIMARY KEY (principal, id)
) STRICT
""",
    "CREATE INDEX threads_by_use ON threads (used_ms)",
)


class ThreadRequest(msgspec.Struct, frozen=True):
    """One complete request, of which the first `held` messages were stored in `row`.

    `thread` is None for a request without a thread.
    """

    request: ChatRequest
    principal: str = ""
    thread: str | None = None
    row: Row | None = None
    held: int = 0

    @contextlib.contextmanager
    def places(self) -> Iterator[None]:
        """Make errors in the block name messages by their index among those that the caller sent."""
        try:
            yield
        except HearthNetError as error:
            raise self._relocated(error) from error.__cause__

    def _relocated(self, error: HearthNetError) -> HearthNetError:
        if not self.held or "path" not in error.details:
            return error

        def moved(found: re.Match[str]) -> str:
            place = int(found[1]) - self.held
            return f"/input/messages/{place}" if place >= 0 else "/input/messages"

        return HearthNetError(
            error.code,
            _PLACE.sub(moved, error.message),
            retry_after_ms=error.retry_after_ms,
            details={**error.details, "path": _PLACE.sub(moved, str(error.details["path"]))},
        )


class Threads:
    """The threads of this node."""

    def __init__(self, folder: Path) -> None:
        self._file = ThreadsFile(folder)

    async def follow(self) -> None:
        """Delete expired threads, now and every hour, until cancelled."""
        while True:
            try:
                await asyncio.to_thread(self._file.sweep)
            except HearthNetError as error:
                _log.warning("%s", error.message)
            await asyncio.sleep(_SWEEP_SECONDS)

    async def whole(self, principal: str, request: ChatRequest) -> ThreadRequest:
        """Return the request with the stored messages of its thread before its own.

        Raises:
            HearthNetError: `thread_missing` if the stored thread differs from the caller's belief;
                `bad_request` for a length without a thread.
        """
        bare = msgspec.structs.replace(request, thread_id=None, thread_length=None)
        if request.thread_id is None:
            if request.thread_length is not None:
                raise HearthNetError(
                    "bad_request",
                    "/input/thread_length: say the thread_id as well",
                    details={"path": "/input/thread_length"},
                )
            return ThreadRequest(bare)
        if request.thread_length == 0:
            return ThreadRequest(bare, principal, request.thread_id)
        row = await asyncio.to_thread(self._file.read, principal, request.thread_id)
        held = [] if row is None else msgspec.json.decode(row.messages, type=list[Message])
        if row is None or request.thread_length not in (None, len(held)):
            raise _missing(request, len(held))
        return ThreadRequest(
            msgspec.structs.replace(bare, messages=[*held, *request.messages]),
            principal,
            request.thread_id,
            row,
            len(held),
        )

    async def keep(self, turn: ThreadRequest, answer: Message) -> int | None:
        """Store the turn and its answer; return the number of stored messages, None if not stored."""
        if turn.thread is None:
            return None
        messages = [*turn.request.messages, answer]
        try:
            is_stored = await asyncio.to_thread(
                self._file.write, turn.principal, turn.thread, msgspec.json.encode(messages), turn.row
            )
        except HearthNetError as error:
            _log.warning("a conversation is not kept: %s", error.message)
            return None
        return len(messages) if is_stored else None

    async def close(self) -> None:
        """Close the file."""
        await asyncio.to_thread(self._file.close)


def _missing(request: ChatRequest, held: int) -> HearthNetError:
    what = f"holds {held} messages here, not {request.thread_length}" if held else "is not kept here"
    return HearthNetError(
        "thread_missing",
        f"the thread {request.thread_id} {what}; send the whole conversation, with thread_length 0",
        details={"thread_id": request.thread_id, "thread_length": held},
    )


class Row(msgspec.Struct, frozen=True):
    """A transcript as JSON; `version` changes with every turn."""

    version: int
    messages: bytes


class ThreadsFile:
    """The file in the service's data folder, which several processes may share.

    `clock` returns ms since the epoch.
    """

    def __init__(self, folder: Path, clock: Callable[[], int] = now_ms) -> None:
        self._file = folder / FILE
        self._clock = clock
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def read(self, principal: str, thread: str) -> Row | None:
        """Return the transcript, or None if there is none or it has expired."""
        since = self._clock() - RETENTION_MS
        row = self._do(
            lambda connection: connection.execute(
                "SELECT version, messages FROM threads WHERE principal = ? AND id = ? AND used_ms > ?",
                (principal, thread, since),
            ).fetchone()
        )
        return None if row is None else Row(*row)

    def write(self, principal: str, thread: str, messages: bytes, after: Row | None) -> bool:
        """Store the transcript; return False if it is too long or another turn came in between.

        `after` is the transcript that it continues, None for a new one. If it is too long, its earlier form
        is deleted too.
        """

        def work(connection: sqlite3.Connection) -> bool:
            key = (principal, thread)
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                row = connection.execute(
                    "SELECT version FROM threads WHERE principal = ? AND id = ?", key
                ).fetchone()
                if after is not None and (row is None or row[0] != after.version):
                    return False
                connection.execute("DELETE FROM threads WHERE principal = ? AND id = ?", key)
                if len(messages) > MOST_THREAD_BYTES:
                    return False
                fields = (*key, secrets.randbits(62), self._clock(), len(messages), messages)
                connection.execute("INSERT INTO threads VALUES (?, ?, ?, ?, ?, ?)", fields)
                self._delete_old(connection)
                connection.execute(
                    "DELETE FROM threads WHERE rowid IN (SELECT rowid FROM threads WHERE principal = ? "
                    "ORDER BY used_ms DESC, rowid DESC LIMIT -1 OFFSET ?)",
                    (principal, MOST_THREADS),
                )
                connection.execute(
                    "DELETE FROM threads WHERE rowid IN (SELECT rowid FROM (SELECT rowid, sum(bytes) OVER "
                    "(ORDER BY used_ms DESC, rowid DESC) AS total FROM threads) WHERE total > ?)",
                    (MOST_BYTES,),
                )
            return True

        return self._do(work)

    def sweep(self) -> None:
        """Delete expired threads."""
        if self._file.exists():
            self._do(self._delete_old)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._hang_up()

    def _delete_old(self, connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM threads WHERE used_ms <= ?", (self._clock() - RETENTION_MS,))

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of `work`, if necessary on a new file instead of a damaged one.

        Raises:
            HearthNetError: `internal_error` if the file cannot be used.
        """
        with self._lock:
            for attempt in (1, 2):
                try:
                    if self._connection is None:
                        self._connection = self._opened()
                    return work(self._connection)
                except sqlite3.DatabaseError as error:
                    self._hang_up()
                    if attempt == 2 or (error.sqlite_errorcode & 0xFF) not in _DAMAGE:
                        raise HearthNetError(
                            "internal_error", f"{self._file}: {error}; see that there is room on the disk"
                        ) from error
                    self._move_aside()
            raise AssertionError("the second attempt returns or raises")

    def _opened(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._file, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            self._file.chmod(0o600)
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            connection.execute("PRAGMA secure_delete = ON").fetchone()
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                version = connection.execute("PRAGMA user_version").fetchone()[0]
                if version != _FILE_VERSION:
                    connection.execute("DROP TABLE IF EXISTS threads")
                    for statement in _TABLES:
                        connection.execute(statement)
                    connection.execute(f"PRAGMA user_version = {_FILE_VERSION}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _move_aside(self) -> None:
        aside = self._file.with_name(f"{self._file.name}.damaged-{now_ms()}")
        _log.warning("the kept conversations are damaged; they are now in %s, and new ones are begun", aside)
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                self._file.with_name(self._file.name + suffix).rename(aside.with_name(aside.name + suffix))
