"""Files that are replaced in one step, so that readers see old or new content."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_whole(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Write `data` to `path` with mode 0600 in one step.

    The data is synced to the disk only if it must be `durable`: much of the output of a running node is of no
    use after a power cut. Raises OSError.
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


def remove_overwritten(path: Path) -> None:
    """Remove a file if it is there, overwritten first where the disk does that in place. Raises OSError."""
    with contextlib.suppress(OSError), path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
        file.flush()
        os.fsync(file.fileno())
    path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make sure that the names in `folder` are on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
