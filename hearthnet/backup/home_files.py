"""The files of a home that belong into a backup, and copies of them as they were at one moment.

A running node changes its files. So they are copied while its processes stand still, as they would be found
after a kill; most of them before that, as long as they are found unchanged then:

    pass 1     changed files are copied while the node runs
    pass 2     the node stands still; files that changed since are copied once more

See: docs/protocol/backup.md#one-moment.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from hearthnet.core.home import Home

LEFT_OUT: Final = (
    ("keys/recovery.key", "the recovery key, which opens the backup: it is on paper"),
    ("backup", "what a backup needs while it is made"),
    ("logs", "what processes printed"),
    ("run", "what only a running node has, but for the marks of calls that had begun"),
    ("nats/server.conf", "written anew at each start"),
    ("nats/upstream.login", "written anew at each start"),
)
"""Files and folders that no backup has, with the reason for each."""
_INSTANCES: Final = "run/instances"
"""Of the files in `run` these alone are copied: from them the next process settles calls that had begun."""
_TEMPORARY: Final = re.compile(r"\..+\.\d+|.+-shm|.+\.sock|\.nfs.*")
"""Files of a write that was under way, and the shared memory of SQLite, which is made again."""
_RACY_NS: Final = 50_000_000
"""A file that was written so shortly before its copy may be written again under the same time."""
_FICLONE: Final = 0x40049409


class FileState(msgspec.Struct, frozen=True, array_like=True):
    """A file's size and what changes with each write to it."""

    size: int
    modified_ns: int
    changed_ns: int
    inode: int
    mode: int


class Copied(msgspec.Struct, frozen=True):
    """A file of the moment; it is in the staging folder, or `is_known` from an earlier backup."""

    path: str
    state: FileState
    is_known: bool


class HomeCopy(msgspec.Struct, frozen=True):
    """All files of a home at the time `time` (Unix milliseconds), for which it stood still `pause_ms`."""

    time: int
    pause_ms: int
    files: tuple[Copied, ...]
    copied_bytes: int = 0
    paused_bytes: int = 0


class TooMuchToCopy(Exception):
    """Raised when copying while the node stands still takes too long."""


def scan(home: Home) -> dict[str, FileState]:
    """Return the files of a backup by their path in the home, with `/` between its parts."""
    found: dict[str, FileState] = {}
    _scan(home.path, "", {path for path, _ in LEFT_OUT}, found)
    _scan(home.path / _INSTANCES, f"{_INSTANCES}/", set(), found)
    return found


def _scan(folder: Path, prefix: str, left_out: set[str], found: dict[str, FileState]) -> None:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        path = f"{prefix}{entry.name}"
        if path in left_out or _TEMPORARY.fullmatch(entry.name):
            continue
        with contextlib.suppress(FileNotFoundError):  # it went away since the folder was read
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                _scan(folder / entry.name, f"{path}/", left_out, found)
            elif stat.S_ISREG(status.st_mode):
                found[path] = FileState(
                    status.st_size,
                    status.st_mtime_ns,
                    status.st_ctime_ns,
                    status.st_ino,
                    stat.S_IMODE(status.st_mode),
                )


class Staging:
    """Copies of a home's files in a folder on the same disk; `known` are files that need none."""

    def __init__(self, home: Home, folder: Path, known: Mapping[str, FileState]) -> None:
        self._home = home
        self._folder = folder
        self._known = known
        self._copies: dict[str, FileState] = {}
        self.copied_bytes = 0

    def size_needed(self) -> int:
        """Return the bytes of the files that are not known."""
        return sum(state.size for path, state in scan(self._home).items() if self._known.get(path) != state)

    def copy_changed(self, until: float | None = None) -> dict[str, FileState]:
        """Copy the files that are neither known nor copied in their present state; return all files.

        `until` is a time of `time.monotonic`.

        Raises:
            TooMuchToCopy: It is not done by then.
        """
        files = scan(self._home)
        for path, state in files.items():
            if self._known.get(path) == state or self._copies.get(path) == state:
                continue
            if until is not None and time.monotonic() > until:
                raise TooMuchToCopy
            now_ns = time.time_ns()
            with contextlib.suppress(FileNotFoundError):
                _copy(self._home.path / path, self._folder / path)
                self.copied_bytes += state.size
                if state.modified_ns < now_ns - _RACY_NS:
                    self._copies[path] = state
        return files

    def moment(
        self, files: Mapping[str, FileState], time_ms: int, pause_ms: int, paused_bytes: int
    ) -> HomeCopy:
        """Return the moment at which the home had `files`, all of which are known or copied."""
        copied = tuple(
            Copied(path, files[path], self._known.get(path) == files[path]) for path in sorted(files)
        )
        return HomeCopy(time_ms, pause_ms, copied, self.copied_bytes, paused_bytes)


def _copy(source: Path, target: Path) -> None:
    """Copy a file; the file system shares its blocks where it can."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.ioctl(writing, _FICLONE, reading)
            except OSError:
                _copy_bytes(reading, writing)
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _copy_bytes(reading: int, writing: int) -> None:
    with os.fdopen(os.dup(reading), "rb") as source, os.fdopen(os.dup(writing), "wb") as target:
        shutil.copyfileobj(source, target, 1024 * 1024)
