"""Model files in packages, found without importing the package and checked by a checksum.

The dependencies of such a package are not installed, so it is never imported. Hashing 98 MB takes a while: a
file that passed is remembered by (path, size, time).
"""

from __future__ import annotations

import contextlib
import hashlib
from importlib import metadata
from pathlib import Path

import msgspec


class FileStamp(msgspec.Struct, frozen=True):
    """The properties of a file that are visible without reading it."""

    path: str
    size: int
    mtime_ns: int


class Pin(msgspec.Struct, frozen=True):
    """The expected file: its package, the end of its path there, its bytes and SHA-256 (hex)."""

    package: str
    ending: str
    size: int
    sha256: str

    def packaged(self) -> Path | None:
        """Return the path of the file in the package, existing or not; None without the package."""
        return packaged_file(self.package, self.ending)

    def intact(self, stamp: FileStamp, memory: Path) -> bool:
        """Return whether `stamp` is the expected file; blocks while it is hashed.

        `memory` is the file that stores the result.

        Raises:
            OSError: The file cannot be read.
        """
        if stamp.size != self.size:
            return False
        if _recall(memory) != stamp and sha256_of(Path(stamp.path)) != self.sha256:
            return False
        _remember(memory, stamp)
        return True


def packaged_file(package: str, ending: str) -> Path | None:
    """Return the path of a package's file, existing or not; None without the package."""
    try:
        files = metadata.distribution(package).files or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if str(file).endswith(ending)), None)


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file in hex; raises OSError."""
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def look(file: Path | None) -> FileStamp | None:
    """Return the visible properties of a file without reading it; None if there is none."""
    if file is None:
        return None
    try:
        status = file.stat()
    except OSError:
        return None
    return FileStamp(str(file), status.st_size, status.st_mtime_ns)


def _recall(memory: Path) -> FileStamp | None:
    try:
        return msgspec.json.decode(memory.read_bytes(), type=FileStamp)
    except (OSError, msgspec.DecodeError):
        return None


def _remember(memory: Path, stamp: FileStamp) -> None:
    with contextlib.suppress(OSError):  # without a stored result, the file is hashed again
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_bytes(msgspec.json.encode(stamp))
