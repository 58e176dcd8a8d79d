"""Markdown: front matter, headings, and the text unchanged.

A file may begin with front matter: TOML between `+++` lines, or YAML between `---` lines, of which only the
lines `title`, `date` and `language` are read. Everything else is the body. A parser of TOML takes time that
grows with the square of its length for some texts, so that front matter is bounded.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Final

from hearthnet_rag.readers.documents import (
    MARKDOWN,
    MOST_HEADINGS,
    Document,
    Heading,
    one_line,
    rejected,
    title_of,
)
from hearthnet_rag.readers.plain import decode, first_line

MAX_FRONT_MATTER_CHARS: Final = 16 * 1024
_MARKS: Final = ("+++", "---")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_UNDERLINE: Final = re.compile(r" {0,3}(?:(=)=*|(-)-*)[ \t]*$")
_YAML_LINE: Final = re.compile(r"(title|date|language)[ \t]*:[ \t]*(.+)", re.IGNORECASE)


def read(data: bytes, name: str | None) -> Document:
    """Read the document in `data`.

    Raises:
        HearthNetError: `bad_request`, with the reason in one line, if it has no text or broken front matter.
    """
    facts, text = _split_front_matter(decode(data, name), name)
    headings = tuple(find_headings(text)[:MOST_HEADINGS])
    if not text.strip():
        raise rejected(name, "has no text in it")
    first = headings[0].text if headings else ""
    return Document(
        title=title_of(name, one_line(facts.get("title")) or "", first, first_line(text)),
        body=text,
        language=one_line(facts.get("language")),
        date=_date(facts.get("date")),
        sources=_sources(facts.get("sources")),
        headings=headings,
        media_type=MARKDOWN,
    )


def find_headings(text: str) -> list[Heading]:
    """Return the headings of Markdown `text` in order, of both notations; none in fenced code."""
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


def _marked_heading(line: str, start: int) -> Heading | None:
    """Return the heading of a line such as `## Text ##`, or None."""
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


def _split_front_matter(text: str, name: str | None) -> tuple[Mapping[str, Any], str]:
    first, _, rest = text.partition("\n")
    mark = first.rstrip()
    if mark not in _MARKS:
        return {}, text
    end = re.search(rf"^{re.escape(mark)}[ \t]*(?:\n|\Z)", rest, re.MULTILINE)
    # Lines that are far apart are rules of a text, which Markdown spells `---` too.
    is_long = end is not None and end.start() > MAX_FRONT_MATTER_CHARS
    if end is None or (is_long and mark == "---"):
        return {}, text
    if is_long:
        raise rejected(
            name,
            f"has front matter of {end.start()} characters, more than {MAX_FRONT_MATTER_CHARS}; shorten it",
            limit=MAX_FRONT_MATTER_CHARS,
        )
    matter, body = rest[: end.start()], rest[end.end() :]
    return (_toml(matter, name) if mark == "+++" else _yaml(matter)), body.lstrip("\n")


def _toml(matter: str, name: str | None) -> Mapping[str, Any]:
    try:
        return tomllib.loads(matter)
    except tomllib.TOMLDecodeError as error:
        raise rejected(name, f"has front matter that is not TOML: {error}") from error


def _yaml(matter: str) -> Mapping[str, Any]:
    lines = (_YAML_LINE.fullmatch(line.rstrip()) for line in matter.splitlines())
    return {found[1].lower(): found[2].strip().strip("\"'") for found in lines if found}


def _date(value: Any) -> str | None:
    return value.isoformat() if isinstance(value, (date, datetime)) else one_line(value)


def _sources(value: Any) -> tuple[str, ...]:
    items = value if isinstance(value, list) else []
    return tuple(item for item in (one_line(item) for item in items) if item)
