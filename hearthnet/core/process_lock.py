"""The live processes of a node: each holds a lock on a file of its own while it runs.

The system releases the lock when the process ends, in whatever way, so that claims and calls of a dead
process are recognised. The files are in `run/instances` of the home, which the node's processes share.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from hearthnet.core.files import sync_folder
from hearthnet.core.home import Home

_ROOM: Final = 128
"""Size of the file in bytes, which is overwritten in one piece."""


class LockContent(msgspec.Struct, frozen=True):
    """The contents of a process's file.

    `since` is the number of an audit entry before its first open call; None if it began no call.
    """

    service: str
    since: int | None


class DeadProcess(NamedTuple):
    """A process that ended with calls open, or was killed."""

    instance: str
    mark: LockContent


def folder(home: Home) -> Path:
    """Return the folder of the files."""
    return home.run / "instances"


class ProcessLock:
    """The file of this process; waits for the disk at its creation and the first `note` only."""

    def __init__(self, home: Home, instance: str, service: str) -> None:
        self._path = folder(home) / instance
        self._service = service
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Under its final name the file is always locked and has contents.
        hidden = self._path.with_name(f".{instance}")
        self._file = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._noted = False
        self._write(None)
        hidden.rename(self._path)
        sync_folder(self._path.parent)

    def note(self, since: int) -> None:
        """Record that the open calls of this process began after entry `since`.

        Only the first record is on the disk on return: a power cut may restore an older number, after which
        more is read than necessary, but not the file of a process that began no call.
        """
        self._write(since, wait=not self._noted)
        self._noted = True

    def _write(self, since: int | None, *, wait: bool = True) -> None:
        os.pwrite(self._file, msgspec.json.encode(LockContent(self._service, since)).ljust(_ROOM), 0)
        if wait:
            os.fsync(self._file)

    def close(self, *, settled: bool) -> None:
        """Release the lock; the file stays if a call is open, for another process to settle."""
        if settled:
            self._path.unlink(missing_ok=True)
        os.close(self._file)


def count(home: Home, service: str) -> int:
    """Return the number of live processes of that service."""
    found = 0
    for path in everybody(home):
        with contextlib.suppress(OSError):
            found += _mark(path.read_bytes()).service == service and lives(home, path.name)
    return found


def lives(home: Home, instance: str) -> bool:
    """Return whether the process of that instance runs."""
    try:
        file = os.open(folder(home) / instance, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


@contextlib.contextmanager
def settling(path: Path) -> Iterator[DeadProcess | None]:
    """Yield the dead process whose file is `path`, while no other process settles its calls.

    None for a process that lives, or is being settled.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield DeadProcess(path.name, _mark(os.pread(file, _ROOM, 0)))
    except BlockingIOError:
        yield None
    finally:
        os.close(file)


def everybody(home: Home) -> list[Path]:
    """Return the files of all processes that live, or are not settled yet."""
    try:
        return sorted(path for path in folder(home).iterdir() if not path.name.startswith("."))
    except FileNotFoundError:
        return []


def living(home: Home) -> list[str]:
    """Return the instances of the node's running processes."""
    return [path.name for path in everybody(home) if lives(home, path.name)]


def _mark(text: bytes) -> LockContent:
    """Return the contents of a file; if a power cut damaged it, any call may be open."""
    try:
        return msgspec.json.decode(text, type=LockContent)
    except msgspec.DecodeError:
        return LockContent("", 0)
