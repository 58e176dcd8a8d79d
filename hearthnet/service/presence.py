"""Which processes of a node live: each holds a file of its own under lock for as long as it runs.

The system lets go of the lock when the process ends, however it ends: what a dead process had claimed or
begun is known to be nobody's. The files lie in `run/instances` of the home, which the node's processes share.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from hearthnet.home import Home

_ROOM: Final = 128
"""Bytes of the file, which is written over in one piece."""


class Mark(msgspec.Struct, frozen=True):
    """What a process leaves in its file: its service, and the number of an entry of the audit log before its
    first open call; None where it never began one.
    """

    service: str
    since: int | None


class Dead(NamedTuple):
    """A process that ended with calls open, or was killed."""

    instance: str
    mark: Mark


def folder(home: Home) -> Path:
    """Where the files lie."""
    return home.run / "instances"


class Presence:
    """This process's own file. Waits for the disk when it is made and at the first `note`, never again."""

    def __init__(self, home: Home, instance: str, service: str) -> None:
        self._path = folder(home) / instance
        self._service = service
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Nobody sees it before it is locked and says something.
        hidden = self._path.with_name(f".{instance}")
        self._file = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._noted = False
        self._write(None)
        hidden.rename(self._path)
        _sync(self._path.parent)

    def note(self, since: int) -> None:
        """Says that what this process has open began after entry `since`.

        Only the first time is it on the disk when this returns: a power cut may bring back an older number,
        from which more is read than need be, but not the file of a process that began nothing.
        """
        self._write(since, wait=not self._noted)
        self._noted = True

    def _write(self, since: int | None, *, wait: bool = True) -> None:
        os.pwrite(self._file, msgspec.json.encode(Mark(self._service, since)).ljust(_ROOM), 0)
        if wait:
            os.fsync(self._file)

    def close(self, *, settled: bool) -> None:
        """Lets go; the file stays where something was left open, for another process to find."""
        if settled:
            self._path.unlink(missing_ok=True)
        os.close(self._file)


def count(home: Home, service: str) -> int:
    """How many processes of that service live."""
    found = 0
    for path in everybody(home):
        with contextlib.suppress(OSError):
            found += _mark(path.read_bytes()).service == service and lives(home, path.name)
    return found


def lives(home: Home, instance: str) -> bool:
    """Whether the process of that instance runs."""
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
def settling(path: Path) -> Iterator[Dead | None]:
    """The dead process whose file `path` is, while no other settles what it left; None for one that lives, or
    is being settled.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield Dead(path.name, _mark(os.pread(file, _ROOM, 0)))
    except BlockingIOError:
        yield None
    finally:
        os.close(file)


def everybody(home: Home) -> list[Path]:
    """The files of all processes that live, or were not settled yet."""
    try:
        return sorted(path for path in folder(home).iterdir() if not path.name.startswith("."))
    except FileNotFoundError:
        return []


def _mark(text: bytes) -> Mark:
    """What the file says; one that a power cut left half-written says that anything may be open."""
    try:
        return msgspec.json.decode(text, type=Mark)
    except msgspec.DecodeError:
        return Mark("", 0)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
