"""The files to ingest: documents in folders, and all files that are named."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hearthnet.cli.output.text import one_line
from hearthnet.core.errors import HearthNetError

MEDIA_TYPES: Final = {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".txt": "text/plain",
    ".html": "text/html",
    ".htm": "text/html",
    ".xhtml": "application/xhtml+xml",
    ".pdf": "application/pdf",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".epub": "application/epub+zip",
}
PATTERNS: Final = ", ".join(f"*{ending}" for ending in MEDIA_TYPES)


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file to read; `name` is used in messages and in the corpus."""

    path: Path
    name: str

    @property
    def media_type(self) -> str:
        """The type of document according to its name."""
        return MEDIA_TYPES.get(self.path.suffix.lower(), "text/plain")

    def read(self, most_bytes: int | None = None) -> bytes:
        """Return its bytes; the recipient checks their format.

        Raises:
            HearthNetError: `bad_request` if it cannot be read, is not a regular file, is empty, or has more
                than `most_bytes`, which is checked before reading.
        """
        try:
            found = self.path.stat()
            if not stat.S_ISREG(found.st_mode):  # a pipe or a device might never end
                raise _refused(self, "is no file but a pipe, a device or a folder")
            if most_bytes is not None and found.st_size > most_bytes:
                sizes = f"has {found.st_size:,} bytes; a document may have {most_bytes:,}"
                raise _refused(self, f"{sizes}: split it")
            data = self.path.read_bytes()
        except OSError as error:
            raise _refused(self, f"cannot be read: {error.strerror}") from error
        if not data.strip():
            raise _refused(self, "is empty")
        return data


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The documents in order, each once, and files of other kinds in folders."""

    texts: list[TextFile]
    skipped: list[str]


def find(paths: list[Path]) -> FoundFiles:
    """Return the files in `paths`: named ones of any kind, documents in folders.

    Hidden files below folders are left out.

    Raises:
        HearthNetError: `not_found` if a path does not exist.
    """
    texts: dict[Path, TextFile] = {}
    skipped: list[str] = []
    for path in paths:
        if not path.exists():
            raise HearthNetError("not_found", f"there is no file or folder {one_line(str(path))}")
        for file in _below(path) if path.is_dir() else [path]:
            name = str(file.relative_to(path.parent)) if path.is_dir() else file.name
            if not path.is_dir() or file.suffix.lower() in MEDIA_TYPES:
                texts.setdefault(file.resolve(), TextFile(file, name))
            else:
                skipped.append(str(file))
    return FoundFiles(list(texts.values()), skipped)


def _below(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(parent, name) for name in sorted(files) if not name.startswith("."))


def _refused(file: TextFile, reason: str) -> HearthNetError:
    return HearthNetError("bad_request", f"{one_line(file.name)} {reason}", details={"path": str(file.path)})
