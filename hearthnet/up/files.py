"""Writing into the data folder: whole files or nothing, and errors that say what to do."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hearthnet.errors import OTHER, HearthNetError

NEEDED_BYTES: Final = 64 * 1024 * 1024
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_ELSEWHERE: Final = "or name another folder with --home or HEARTHNET_HOME"


@contextlib.contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Turns an OSError inside the block into one line about `path`.

    `capacity_exceeded` (exit code 8) for a full disk; `bad_request` with exit code 1 for a folder that
    cannot be written and all else.
    """
    try:
        yield
    except OSError as error:
        raise storage_error(path, error) from error


def storage_error(path: Path, error: OSError) -> HearthNetError:
    """What to tell a person about `error`, met while writing `path`."""
    where = error.filename or path
    if error.errno in _FULL:
        return HearthNetError("capacity_exceeded", f"the disk of {where} is full; make room, {_ELSEWHERE}")
    reason = error.strerror or type(error).__name__
    return HearthNetError(
        "bad_request",
        f"cannot write {where}: {reason}; make it writable for this user, {_ELSEWHERE}",
        exit_status=OTHER,
    )


def make_folder(path: Path, *, private: bool = True) -> None:
    """Makes `path` and what is above it; `private` folders become 0700 also where they were wider before."""
    with file_errors(path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if private and stat.S_IMODE(path.stat().st_mode) & 0o077:
            path.chmod(0o700)


def check_space(path: Path, needed: int = NEEDED_BYTES) -> None:
    """Raises `capacity_exceeded` unless the file system of `path` has `needed` bytes left."""
    with file_errors(path):
        free = shutil.disk_usage(path).free
    if free < needed:
        raise HearthNetError(
            "capacity_exceeded",
            f"only {free // 1_000_000} MB are free where {path} lies, and a node needs "
            f"{needed // 1_000_000} MB to start; make room, {_ELSEWHERE}",
            details={"free_bytes": free, "needed_bytes": needed},
        )


def write_whole(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Puts `data` at `path` with mode 0600 in one step: a reader sees the old content or the new. Raises
    OSError.

    Synced to the disk only where it is to be `durable`: much of what a running node writes is worthless
    after a power cut anyway.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
