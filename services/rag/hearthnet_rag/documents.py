"""Reading a document: bytes in, title, body and what is known of it out (capabilities.md, rag.ingest).

A Markdown file may begin with front matter: TOML between `+++` lines, or YAML between `---` lines of which
only the `title`, `date` and `language` lines are read. Everything else is the body. Nothing here does I/O.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Final

from hearthnet.errors import HearthNetError

MARKDOWN: Final = "text/markdown"
PLAIN: Final = "text/plain"
TITLE_LIMIT: Final = 300

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_UNDERLINE: Final = re.compile(r" {0,3}(?:(=)=*|(-)-*)[ \t]*$")
_YAML_LINE: Final = re.compile(r"(title|date|language)[ \t]*:[ \t]*(.+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of the body: level 1 to 6, its text, and the offset in characters of the line it begins."""

    level: int
    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Document:
    """One document as text. `body` has no front matter, and line ends are `\\n`.

    `pages` holds the offsets in characters at which pages 1, 2, ... begin; empty where there are no pages.
    """

    title: str
    body: str
    language: str | None = None
    date: str | None = None
    sources: tuple[str, ...] = ()
    headings: tuple[Heading, ...] = field(default=(), repr=False)
    pages: tuple[int, ...] = field(default=(), repr=False)


def read_document(data: bytes, media_type: str = MARKDOWN, name: str | None = None) -> Document:
    """The document in `data`; `name` is the file name it came from and is the last resort for its title.

    `bad_request` with one line that says why, where `data` is no text: empty, with NUL bytes or not UTF-8,
    or with TOML front matter that is no TOML.
    """
    text = _decode(data, name)
    facts: Mapping[str, Any] = {}
    headings: tuple[Heading, ...] = ()
    if media_type == MARKDOWN:
        facts, text = _split_front_matter(text, name)
        headings = tuple(find_headings(text))
    if not text.strip():
        raise _refused(name, "has no text in it")
    return Document(
        title=_title(facts, headings, text, name),
        body=text,
        language=_line(facts.get("language")),
        date=_date(facts.get("date")),
        sources=_sources(facts.get("sources")),
        headings=headings,
    )


def find_headings(text: str) -> list[Heading]:
    """The headings of Markdown `text` in order, both kinds (`## so` and underlined); none in fenced code."""
    found: list[Heading] = []
    fence: str | None = None
    start, previous, previous_start = 0, "", 0
    for line in text.splitlines(keepends=True):
        plain = ""
        if mark := _FENCE.match(line):
            fence = _next_fence(fence, mark[1])
        elif fence is None and (marked := _marked_heading(line, start)):
            found.append(marked)
        elif fence is None and (under := _UNDERLINE.match(line)):
            if previous:
                found.append(Heading(1 if under[1] == "=" else 2, previous, previous_start))
        elif fence is None:
            plain = line.strip()
        previous, previous_start = plain, start
        start += len(line)
    return found


def file_name(path: str) -> str:
    """The last part of a path written on any system."""
    return PureWindowsPath(PurePosixPath(path).name).name


def _marked_heading(line: str, start: int) -> Heading | None:
    """The heading of a line such as `## Text ##`."""
    bare = line.lstrip(" ")
    level = len(bare) - len(bare.lstrip("#"))
    rest = bare[level:]
    if len(line) - len(bare) > 3 or not 1 <= level <= 6 or not rest[:1].isspace():
        return None
    text = rest.strip()
    opened = text.rstrip("#")
    text = opened.rstrip() if not opened or opened[-1].isspace() else text
    return Heading(level, text, start) if text else None


def _next_fence(open_fence: str | None, mark: str) -> str | None:
    if open_fence is None:
        return mark
    closes = mark[0] == open_fence[0] and len(mark) >= len(open_fence)
    return None if closes else open_fence


def _decode(data: bytes, name: str | None) -> str:
    if not data.strip():
        raise _refused(name, "is empty")
    if b"\0" in data:
        raise _refused(name, "is not text (it has NUL bytes); Markdown and plain text in UTF-8 can be read")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused(name, f"is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _split_front_matter(text: str, name: str | None) -> tuple[Mapping[str, Any], str]:
    first, _, rest = text.partition("\n")
    mark = first.rstrip()
    if mark not in {"+++", "---"}:
        return {}, text
    end = re.search(rf"^{re.escape(mark)}[ \t]*(?:\n|\Z)", rest, re.MULTILINE)
    if end is None:
        return {}, text
    matter, body = rest[: end.start()], rest[end.end() :]
    return (_toml(matter, name) if mark == "+++" else _yaml(matter)), body.lstrip("\n")


def _toml(matter: str, name: str | None) -> Mapping[str, Any]:
    try:
        return tomllib.loads(matter)
    except tomllib.TOMLDecodeError as error:
        raise _refused(name, f"has front matter that is not TOML: {error}") from error


def _yaml(matter: str) -> Mapping[str, Any]:
    lines = (_YAML_LINE.fullmatch(line.rstrip()) for line in matter.splitlines())
    return {found[1].lower(): found[2].strip().strip("\"'") for found in lines if found}


def _title(facts: Mapping[str, Any], headings: tuple[Heading, ...], body: str, name: str | None) -> str:
    named = PurePosixPath(file_name(name)).stem if name else ""
    first_line = next(line.strip() for line in body.splitlines() if line.strip())
    title = _line(facts.get("title")) or (headings[0].text if headings else "") or named or first_line
    return title[:TITLE_LIMIT]


def _line(value: Any) -> str | None:
    return " ".join(value.split()) or None if isinstance(value, str) else None


def _date(value: Any) -> str | None:
    return value.isoformat() if isinstance(value, (date, datetime)) else _line(value)


def _sources(value: Any) -> tuple[str, ...]:
    items = value if isinstance(value, list) else []
    return tuple(item for item in (_line(item) for item in items) if item)


def _refused(name: str | None, reason: str) -> HearthNetError:
    what = name or "the document"
    return HearthNetError("bad_request", f"{what} {reason}", details={"path": "/input/doc_cid"})
