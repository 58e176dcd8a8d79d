"""Text for a terminal: foreign text made harmless, JSON values as lines, numbers with units.

A model's words, a neighbour's post or a file name may hold escape sequences that move the cursor,
characters that turn the reading direction, and invisible ones. Each is shown as its code and has no effect.

See: docs/protocol/agent.md#untrusted-content.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Final

_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Controls, formats (bidirectional too), surrogates, private use, unassigned, line separators."""
_INVISIBLE: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and marks by category that are nevertheless invisible."""
_SUSPECT: Final = re.compile(r"[^\x20-\x7e]")
_SUSPECT_IN_LINES: Final = re.compile(r"[^\x20-\x7e\n\t\u200c\u200d]")
"""The two joiners are needed to write some languages and emoji, and harmless in text that is only read."""


def is_hidden(letter: str) -> bool:
    """Return whether `letter` is invisible, or changes how other characters are displayed."""
    return unicodedata.category(letter) in _HIDDEN or letter in _INVISIBLE


def one_line(text: str) -> str:
    """Return `text` on one line, every hidden character as its code (`\\n`, `\\x1b`, `\\u202e`)."""
    return _SUSPECT.sub(_code, text)


def many_lines(text: str) -> str:
    """Return `text` with its lines, tabs and joiners, other hidden characters as codes."""
    return _SUSPECT_IN_LINES.sub(_code, text)


def as_json(value: Any, *, indent: int | None = None) -> str:
    """Return `value` as JSON without hidden characters.

    It is unambiguous, since a backslash in it is doubled: a program reads exactly `value` from it.
    """
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    return _SUSPECT.sub(_json_code, text)


def shorten(text: str, width: int) -> str:
    """Return `text` in at most `width` characters, with a mark if it was cut."""
    return text if len(text) <= width else text[: max(0, width - 3)].rstrip() + "..."


def counted(count: int, thing: str) -> str:
    """Return a number with its noun: `1 file`, `2 files`."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def size(count: int) -> str:
    """Return a number of bytes for people: `812 B`, `14 kB`, `9.8 MB`."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            value = count / factor
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{count} B"


def duration(ms: int) -> str:
    """Return a time for people: `340 ms`, `2.1 s`, `3 min`, `5 h`, `2 d`; not less than 0."""
    if ms < 1000:
        return f"{max(0, ms)} ms"
    seconds = ms / 1000
    for unit, factor in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= factor:
            return f"{int(seconds // factor)} {unit}"
    return f"{seconds:.1f} s"


def _code(found: re.Match[str]) -> str:
    letter = found[0]
    return letter.encode("unicode_escape").decode("ascii") if is_hidden(letter) else letter


def _json_code(found: re.Match[str]) -> str:
    letter = found[0]
    if letter == "\n" or not is_hidden(letter):
        return letter
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def as_lines(value: Any) -> Iterator[str]:
    """Yield `value` in lines without control characters."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _member(f"{one_line(str(name))}:", inner)
    elif isinstance(value, list) and value:
        for inner in value:
            yield from _member("-", inner)
    else:
        yield from _leaf(value)


def _member(head: str, value: Any) -> Iterator[str]:
    lines = list(as_lines(value))
    flat = head == "-" or not isinstance(value, dict | list) or not value
    if flat and (len(lines) == 1 or head == "-"):
        first, *lines = lines
        head = f"{head} {first}"
    yield head
    for line in lines:
        yield f"  {line}"


def _leaf(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from many_lines(value).splitlines() or [""]
    else:
        yield as_json(value)
