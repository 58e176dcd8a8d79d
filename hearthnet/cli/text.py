"""Text that comes from elsewhere, made harmless for a terminal.

A model's words, a neighbour's post or a file name may hold escape sequences that move the cursor, characters
that turn the reading direction, and others that nobody sees. Each is shown as its code, and not obeyed.

See: docs/protocol/agent.md#untrusted-content.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any, Final

_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Controls, formats (bidirectional too), surrogates, private use, unassigned, line separators."""
_INVISIBLE: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and marks by category, and yet nothing is seen of them."""
_SUSPECT: Final = re.compile(r"[^\x20-\x7e]")
_SUSPECT_IN_LINES: Final = re.compile(r"[^\x20-\x7e\n\t\u200c\u200d]")
"""The two joiners are needed to write some languages and emoji, and harmless where text is only read."""


def is_hidden(letter: str) -> bool:
    """Whether a reader would not see `letter`, or would see something else because of it."""
    return unicodedata.category(letter) in _HIDDEN or letter in _INVISIBLE


def one_line(text: str) -> str:
    """`text` on one line, every hidden character as its code (`\\n`, `\\x1b`, `\\u202e`)."""
    return _SUSPECT.sub(_code, text)


def many_lines(text: str) -> str:
    """`text` with its lines, tabs and joiners, every other hidden character as its code."""
    return _SUSPECT_IN_LINES.sub(_code, text)


def as_json(value: Any, *, indent: int | None = None) -> str:
    """`value` as JSON without a hidden character: unambiguous, since a backslash in it is doubled.

    A program reads exactly `value` from it.
    """
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    return _SUSPECT.sub(_json_code, text)


def shorten(text: str, width: int) -> str:
    """`text` in at most `width` characters, the cut marked."""
    return text if len(text) <= width else text[: max(0, width - 3)].rstrip() + "..."


def counted(count: int, thing: str) -> str:
    """`1 file`, `2 files`."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def size(count: int) -> str:
    """A number of bytes for people: `812 B`, `14 kB`, `9.8 MB`."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            value = count / factor
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{count} B"


def duration(ms: int) -> str:
    """A time for people: `340 ms`, `2.1 s`, `3 min`, `5 h`, `2 d`."""
    if ms < 1000:
        return f"{ms} ms"
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
