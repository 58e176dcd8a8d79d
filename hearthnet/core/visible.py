"""The characters that are drawn as codes where a person decides about a text, so that nothing is hidden.

The page has the same rule and the same table (`lib/visible.js` and `lib/hidden.js` of the gateway's page);
`tests/gateway/page/test_library.py` compares them.

See: docs/protocol/approvals.md#what-is-shown.
"""

from __future__ import annotations

import bisect
import json
import unicodedata
from typing import Any, Final

HIDDEN: Final = (
    (0x0, 0x1F),
    (0x7F, 0xA0),
    (0xAD, 0xAD),
    (0x34F, 0x34F),
    (0x600, 0x605),
    (0x61C, 0x61C),
    (0x6DD, 0x6DD),
    (0x70F, 0x70F),
    (0x890, 0x891),
    (0x8E2, 0x8E2),
    (0x115F, 0x1160),
    (0x1680, 0x1680),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2000, 0x200F),
    (0x2028, 0x202F),
    (0x205F, 0x206F),
    (0x2800, 0x2800),
    (0x3000, 0x3000),
    (0x3164, 0x3164),
    (0xD800, 0xF8FF),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFFC),
    (0x110BD, 0x110BD),
    (0x110CD, 0x110CD),
    (0x13430, 0x13455),
    (0x1BCA0, 0x1BCA3),
    (0x1D159, 0x1D159),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
    (0xF0000, 0xFFFFD),
    (0x100000, 0x10FFFD),
)
"""First and last code points of what has no picture of its own.

These are controls, formats, bidirectional and ignorable characters, blanks other than the space, surrogates
and private use.
"""
MAX_MARKS: Final = 4
"""Combining marks on one letter; more of them cover what stands beside it."""
_FROM_RIGHT: Final = frozenset(("R", "AL", "AN"))
_STARTS: Final = [first for first, _ in HIDDEN]
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def is_hidden(letter: str) -> bool:
    """Return whether a character is invisible, unassigned, or changes how others are displayed."""
    code = ord(letter)
    place = bisect.bisect_right(_STARTS, code) - 1
    return (place >= 0 and code <= HIDDEN[place][1]) or unicodedata.category(letter) == "Cn"


def marked(text: str) -> list[bool]:
    """Return for each character of `text` whether it is drawn as its code.

    These are hidden ones; combining marks without a letter and beyond `MAX_MARKS`; and spaces beside others,
    beside a line break, and at the ends of the text.
    """
    found, marks, has_letter = [], 0, False
    last = len(text) - 1
    for place, letter in enumerate(text):
        if letter == " ":
            beside = " \n" if place in (0, last) else text[place - 1] + text[place + 1]
            found.append(" " in beside or "\n" in beside)
            has_letter = False
        elif is_hidden(letter):
            found.append(True)
            has_letter = False
        elif not letter.isascii() and unicodedata.category(letter).startswith("M"):
            marks += 1
            found.append(not has_letter or marks > MAX_MARKS)
        else:
            found.append(False)
            marks, has_letter = 0, True
    return found


def shown_line(text: str, most: int) -> str:
    """Return the words of somebody else as a part of one line: marked characters as codes, cut at `most`."""
    kept = text[:most]
    line = "".join(
        _code(letter) if drawn else letter for letter, drawn in zip(kept, marked(kept), strict=True)
    )
    return line if len(line) <= most and len(text) <= most else f"{line[: most - 3]}..."


def exact_json(value: Any, *, beside: bool = False) -> str:
    """Return `value` as compact JSON, marked characters as codes: a program reads exactly `value` from it.

    Letters and digits that are written from the right are codes as well where other values are on the line,
    in a list or an object or `beside` it, because they would change the order in which all are displayed.
    """
    if isinstance(value, dict):
        members = (
            f"{_string(str(name), beside=True)}:{exact_json(one, beside=True)}" for name, one in value.items()
        )
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(exact_json(one, beside=True) for one in value) + "]"
    return _string(value, beside=beside) if isinstance(value, str) else json.dumps(value)


def _string(text: str, *, beside: bool) -> str:
    pairs = zip(text, marked(text), strict=True)
    inside = "".join(
        _code(letter)
        if drawn or (beside and unicodedata.bidirectional(letter) in _FROM_RIGHT)
        else _plain(letter)
        for letter, drawn in pairs
    )
    return f'"{inside}"'


def _plain(letter: str) -> str:
    return f"\\{letter}" if letter in '"\\' else letter


def _code(letter: str) -> str:
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return _SHORT.get(letter) or "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
