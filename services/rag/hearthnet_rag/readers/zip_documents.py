"""Documents in ZIP archives: detection of their format, and limits of unpacking."""

from __future__ import annotations

import io
import posixpath
import zipfile
import zlib
from typing import Final
from urllib.parse import unquote

from hearthnet import HearthNetError
from hearthnet_rag.readers import OnProgress
from hearthnet_rag.readers.documents import Document, rejected

MOST_ENTRIES: Final = 10_000
MOST_UNPACKED: Final = 256 * 1024 * 1024
MOST_RATIO: Final = 200
_RATIO_FROM: Final = 4 * 1024 * 1024
"""Size below which a high ratio is harmless: a document with empty pages has one."""
_ENCRYPTED: Final = 0x1
_KINDS: Final = {
    "xl/workbook.xml": "a spreadsheet (XLSX): save it as PDF or CSV",
    "ppt/presentation.xml": "a presentation (PPTX): save it as PDF",
    "content.xml": "an OpenDocument file: save it as DOCX or PDF",
    "AndroidManifest.xml": "an Android app",
}


class Archive:
    """A ZIP archive in memory. Nothing is written to disk, so the paths in it are harmless."""

    def __init__(self, data: bytes, name: str | None) -> None:
        self._name = name
        self._left = MOST_UNPACKED
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise self.broken(error) from error
        self.names = set(self._zip.namelist())
        self._check(self._zip.infolist())

    def _check(self, entries: list[zipfile.ZipInfo]) -> None:
        if len(entries) > MOST_ENTRIES:
            raise rejected(self._name, f"has {len(entries)} files packed in it, more than {MOST_ENTRIES}",
                          limit=MOST_ENTRIES)  # fmt: skip
        unpacked = sum(entry.file_size for entry in entries)
        if unpacked > MOST_UNPACKED:
            raise rejected(
                self._name, f"unpacks to {unpacked} bytes, more than {MOST_UNPACKED}", limit=MOST_UNPACKED
            )
        for entry in entries:
            if entry.file_size > max(_RATIO_FROM, entry.compress_size * MOST_RATIO):
                raise rejected(self._name, f"is packed more than {MOST_RATIO} to 1, as no document is")

    def read(self, path: str) -> bytes:
        """Return the content of `path`.

        Raises:
            HearthNetError: `bad_request` if it is missing, broken, encrypted or too large.
        """
        try:
            entry = self._zip.getinfo(path)
            if entry.flag_bits & _ENCRYPTED:
                raise rejected(self._name, "is encrypted with a password; save it without one")
            with self._zip.open(entry) as file:
                data = file.read(self._left + 1)
        except KeyError as error:
            raise rejected(self._name, f"is broken: {path[:200]} is missing in it") from error
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError) as error:
            raise self.broken(error) from error
        self._left -= len(data)
        if self._left < 0:
            raise rejected(self._name, f"unpacks to more than {MOST_UNPACKED} bytes", limit=MOST_UNPACKED)
        return data

    def broken(self, error: Exception) -> HearthNetError:
        """Return the error for an archive that cannot be unpacked."""
        why = " ".join(str(error).split())[:200] or type(error).__name__
        return rejected(self._name, f"is broken, or was cut off ({why}); copy it anew")


def read(data: bytes, name: str | None, on_progress: OnProgress) -> Document:
    """Read the document in the archive `data`.

    Raises:
        HearthNetError: `bad_request`, with the reason in one line, if it cannot be read.
    """
    archive = Archive(data, name)
    if "word/document.xml" in archive.names:
        from hearthnet_rag.readers import docx

        return docx.read(archive, data, name)
    if "META-INF/container.xml" in archive.names:
        from hearthnet_rag.readers import epub

        return epub.read(archive, name, on_progress)
    unknown = "a ZIP archive and no document: unpack it first, and add what is in it"
    what = next((kind for path, kind in _KINDS.items() if path in archive.names), unknown)
    raise rejected(name, f"is {what}; what can be read is PDF, HTML, Markdown, text, DOCX and EPUB")


def joined(folder: str, href: str) -> str:
    """Return the path in an archive to which `href` leads from `folder`."""
    path = unquote(href.partition("#")[0])
    return posixpath.normpath(posixpath.join(folder, path)).lstrip("/")
