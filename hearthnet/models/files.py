"""Files of models that packages carry, found without importing the package and held to a checksum.

What such a package depends on is not installed, so it is never imported. Hashing 98 MB takes a while: a file
that was found right is remembered by (path, size, time).
"""

from __future__ import annotations

import contextlib
import hashlib
from importlib import metadata
from pathlib import Path

import msgspec


class Seen(msgspec.Struct, frozen=True):
    """A file as it is seen without reading it."""

    path: str
    size: int
    mtime_ns: int


class Pin(msgspec.Struct, frozen=True):
    """A file that is meant: the package that carries it, how its path there ends, its bytes and their
    SHA-256 (hex).
    """

    package: str
    ending: str
    size: int
    sha256: str

    def packaged(self) -> Path | None:
        """Where the package has the file, be it there or not; None without the package."""
        try:
            files = metadata.distribution(self.package).files or []
        except metadata.PackageNotFoundError:
            return None
        return next((Path(str(file.locate())) for file in files if str(file).endswith(self.ending)), None)

    def intact(self, seen: Seen, memory: Path) -> bool:
        """Whether it is the file that is meant; `memory` is where the outcome of the check is kept.

        Raises `OSError` where it cannot be read. Blocks while it is hashed.
        """
        if seen.size != self.size:
            return False
        if _recall(memory) != seen:
            with open(seen.path, "rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != self.sha256:
                    return False
        _remember(memory, seen)
        return True


def look(file: Path | None) -> Seen | None:
    """What can be seen of a file without reading it; None where there is none."""
    if file is None:
        return None
    try:
        status = file.stat()
    except OSError:
        return None
    return Seen(str(file), status.st_size, status.st_mtime_ns)


def _recall(memory: Path) -> Seen | None:
    try:
        return msgspec.json.decode(memory.read_bytes(), type=Seen)
    except (OSError, msgspec.DecodeError):
        return None


def _remember(memory: Path, seen: Seen) -> None:
    with contextlib.suppress(OSError):  # what is not remembered is hashed again
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_bytes(msgspec.json.encode(seen))
