"""A document as text, and what is known of it. Nothing here does I/O.

See: docs/capabilities.md#ragingest10.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Final

import msgspec

from hearthnet.errors import HearthNetError

MARKDOWN: Final = "text/markdown"
PLAIN: Final = "text/plain"
HTML: Final = "text/html"
XHTML: Final = "application/xhtml+xml"
PDF: Final = "application/pdf"
DOCX: Final = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
EPUB: Final = "application/epub+zip"
TITLE_LIMIT: Final = 300


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of the body: level 1 to 6, its text, and the offset in characters of the line it begins."""

    level: int
    text: str
    start: int


class Pages(msgspec.Struct, frozen=True):
    """Pages that follow each other, counted from 1; both ends belong to them."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Document:
    """One document as text. `body` has no front matter, and line ends are `\\n`.

    `pages` holds the offsets in characters at which pages 1, 2, ... begin; empty where there are no pages.
    `without_text` are pages that show something, and nothing of it is text: they were scanned.
    `media_type` is what the document turned out to be.
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
    """The last part of a path written on any system."""
    return PureWindowsPath(PurePosixPath(path).name).name


def title_of(named: str | None, *others: str) -> str:
    """The first of these that says anything, then the name of the file, at most 300 characters of it."""
    stem = PurePosixPath(file_name(named)).stem if named else ""
    found = next(
        (one for one in (one_line(other) for other in (*others[:-1], stem, *others[-1:])) if one), None
    )
    return (found or "document")[:TITLE_LIMIT]


def one_line(value: Any) -> str | None:
    """`value` as one line; None for what is no text, or blank."""
    return " ".join(value.split()) or None if isinstance(value, str) else None


def refused(name: str | None, reason: str, **details: Any) -> HearthNetError:
    """The error for a document that cannot be added, and why, in one line."""
    what = name or "the document"
    return HearthNetError("bad_request", f"{what} {reason}", details={"path": "/input/doc_cid", **details})
