"""The data folder on its disk: atomic writes, errors that name the remedy, free space."""

from __future__ import annotations

import contextlib
import errno
import math
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from hearthnet.core.errors import OTHER, HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.core.home import FULL_BYTES, ROOM_BYTES, Home

NEEDED_BYTES: Final = 64 * 1024 * 1024
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_ELSEWHERE: Final = "or name another folder with --home or HEARTHNET_HOME"


@contextlib.contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Translate an OSError inside the block to an error about `path`.

    Raises:
        HearthNetError: `capacity_exceeded` (exit code 8) for a full disk; `bad_request` with exit code 1 for
            a folder that cannot be written and all other errors.
    """
    try:
        yield
    except OSError as error:
        raise storage_error(path, error) from error


def storage_error(path: Path, error: OSError) -> HearthNetError:
    """Return the error for a person about `error`, which occurred while writing `path`."""
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
    """Make `path` and its parents; a `private` folder gets mode 0700 even if it existed."""
    with file_errors(path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if private and stat.S_IMODE(path.stat().st_mode) & 0o077:
            path.chmod(0o700)


def check_space(path: Path, needed: int = NEEDED_BYTES) -> None:
    """Check the free space of the file system of `path`.

    Raises:
        HearthNetError: `capacity_exceeded` if fewer than `needed` bytes are free.
    """
    with file_errors(path):
        free = shutil.disk_usage(path).free
    if free < needed:
        raise HearthNetError(
            "capacity_exceeded",
            f"only {free // 1_000_000} MB are free where {path} lies, and a node needs "
            f"{needed // 1_000_000} MB to start; make room, {_ELSEWHERE}",
            details={"free_bytes": free, "needed_bytes": needed},
        )


SPARE_BYTES: Final = 64 * 1024


class Disk:
    """The state of the disk of `home`; `note` is a line for a person while it is full.

    It is full below `FULL_BYTES` and has room again from `ROOM_BYTES`; between the two nothing changes, so
    that a disk near a limit does not cause repeated messages.

    A small spare file is kept and deleted when the disk is full, so that the node's state, which reports
    that, can still be written.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._spare = home.run / "spare"
        self.note: str | None = None

    def look(self, complaint: bool) -> Literal["full", "room"] | None:
        """Return the change since the last look; `complaint`: the server met a full disk.

        `room` is also returned for a complaint about a disk that has room by now. Raises OSError where the
        system does not report the free space.
        """
        free = self._home.free_bytes()
        if free >= ROOM_BYTES:
            changed = complaint or self.note is not None
            self.note = None
            self._keep_spare()
            return "room" if changed else None
        if self.note is not None or (free >= FULL_BYTES and not complaint):
            return None
        self.forget_spare()
        missing = math.ceil((ROOM_BYTES - free) / 1_000_000)
        self.note = f"the disk is full: posts and documents cannot be kept; free {missing} MB"
        return "full"

    def forget_spare(self) -> None:
        """Delete the spare file."""
        with contextlib.suppress(OSError):
            self._spare.unlink(missing_ok=True)

    def _keep_spare(self) -> None:
        with contextlib.suppress(OSError):
            if not self._spare.exists():
                write_whole(self._spare, bytes(SPARE_BYTES))
