"""A document as text with its metadata. Nothing here does I/O.

See: docs/capabilities.md#ragingest10.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Final

import msgspec

from hearthnet import HearthNetError

MARKDOWN: Final = "text/markdown"
PLAIN: Final = "text/plain"
HTML: Final = "text/html"
XHTML: Final = "application/xhtml+xml"
PDF: Final = "application/pdf"
DOCX: Final = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
EPUB: Final = "application/epub+zip"
TITLE_LIMIT: Final = 300
MOST_HEADINGS: Final = 100_000
"""Headings of one document; of Markdown the first of them count."""
_LANGUAGE: Final = re.compile(r"[A-Za-z]{2,3}(?![A-Za-z])")


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading: level 1 to 6, its text, and the offset in characters of its line."""

    level: int
    text: str
    start: int


class Pages(msgspec.Struct, frozen=True):
    """A range of pages, counted from 1; both ends are included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Document:
    """One document as text. `body` has no front matter, and its line ends are LF.

    `pages` has the offsets in characters at which pages 1, 2, ... begin, and is empty for a document without
    pages. `without_text` lists pages with images and no text, which were scanned. `media_type` is the
    detected type.
    """

    title: str
    body: str
    language: str | None = None
    date: str | None = None
    sources: tuple[str, ...] = ()
    headings: tuple[Heading, ...] = field(default=(), repr=False)
    pages: tuple[int, ...] = field(default=(), repr=False)
    media_type: str = MARKDOWN
    without_text: tuple[Pages, ...] = ()


def file_name(path: str) -> str:
    """Return the last part of a path in the notation of any operating system."""
    return PureWindowsPath(PurePosixPath(path).name).name


def title_of(named: str | None, *others: str) -> str:
    """Return the first of the titles that is not blank, at most 300 characters of it.

    The name of the file in `named` is considered before the last of `others`.
    """
    stem = PurePosixPath(file_name(named)).stem if named else ""
    found = next(
        (one for one in (one_line(other) for other in (*others[:-1], stem, *others[-1:])) if one), None
    )
    return (found or "document")[:TITLE_LIMIT]


def one_line(value: Any) -> str | None:
    """Return `value` as one line, or None if it is blank or not a string."""
    return " ".join(value.split()) or None if isinstance(value, str) else None


def language_of(tag: str | None) -> str | None:
    """Return the language of a tag such as `de-AT`, or None."""
    found = _LANGUAGE.match(tag or "")
    return found[0].lower() if found else None


def rejected(name: str | None, reason: str, **details: Any) -> HearthNetError:
    """Return the error for a document that cannot be added; `reason` is one line."""
    what = name or "the document"
    return HearthNetError("bad_request", f"{what} {reason}", details={"path": "/input/doc_cid", **details})


def stopped() -> HearthNetError:
    """Return the error of an ingestion that was interrupted by the end of the process."""
    return HearthNetError(
        "partition",
        "the rag service is stopping; the document was not added, try again",
        details={"rule": "provider_stopping"},
    )
