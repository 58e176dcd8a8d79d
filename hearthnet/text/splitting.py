"""Splitting of a text into sentences, and into parts of limited length.

Nothing is lost: the results, concatenated, are the text. No list of abbreviations is complete; splitting too
often makes translations slightly worse, splitting too rarely makes parts longer.

See: docs/trans.md#long-texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_STOPS: Final = r".!?\u2026\u06d4\u061f\u0964"
"""Ends of sentences, Urdu's, Arabic's and Hindi's too; a row of them is read once, not from each of them."""
_CLOSING: Final = r"\"'\u201d\u2019\u00bb\u00ab\u203a)\]"
_END: Final = re.compile(
    rf"""
    (?P<stop> (?<![{_STOPS}]) [{_STOPS}]++ [{_CLOSING}]*+ \s++ (?=\S) )
  | (?P<wide> [\u3002\uff01\uff1f]+ [\u300d\u300f\u201d\u2019\uff09]* \s* )  # Chinese, Japanese
  | (?P<line> \n (?: [ \t]*\n )+ \s* | \n (?=[ \t]*(?:[-+*\u2022>\#]|\d{{1,3}}[.)])[ \t]) )
    """,
    re.VERBOSE,
)
_ABBREVIATED: Final = re.compile(
    r"""(?: \b(?:Mr|Mrs|Ms|Dr|Prof|St|Sr|Sra|Jr|vs|etc|ca|cf|Nr|No|Abs|Art|Str|bzw|usw|vgl|Fr|Hr|Hrn|approx
        |resp|Ud|Uds|av|p|pp|vol|fig|inc|ltd|co) | (?:^|[\s(.])[^\W\d_] | (?:^|\s)\d{1,2} )\Z""",
    re.VERBOSE | re.IGNORECASE,
)
_BEFORE: Final = 12
"""Number of characters before a full stop in which an abbreviation is looked for."""
_CLAUSE: Final = re.compile(r"[,;:\u2013\u2014\u3001\uff0c\uff1b]\s*(?=\S)|\n")
_SPACE: Final = re.compile(r"\s+(?=\S)")


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of `text` with the white space after them."""
    start = 0
    for match in _END.finditer(text):
        if match["stop"] and _goes_on(text, match):
            continue
        yield text[start : match.end()]
        start = match.end()
    if start < len(text):
        yield text[start:]


def parts(text: str, most: int) -> Iterator[str]:
    """Yield `text` in parts of at most `most` characters, at least 1.

    A part has whole sentences if they are short enough, else whole clauses, words, or what fits.
    """
    part = ""
    for sentence in sentences(text):
        for piece in _cut(sentence, most):
            if part and len(part) + len(piece) > most:
                yield part
                part = ""
            part += piece
    if part:
        yield part


def _goes_on(text: str, end: re.Match[str]) -> bool:
    """Return whether the sentence continues: a small letter follows, or an abbreviation ends."""
    if text[end.end()].islower():
        return True
    alone = end[0][0] == "." and end[0][1].isspace()
    return alone and _ABBREVIATED.search(text, max(0, end.start() - _BEFORE), end.start()) is not None


def _cut(sentence: str, most: int) -> Iterator[str]:
    while len(sentence) > most:
        place = _last(_CLAUSE, sentence, most) or _last(_SPACE, sentence, most) or most
        yield sentence[:place]
        sentence = sentence[place:]
    yield sentence


def _last(where: re.Pattern[str], text: str, most: int) -> int:
    """Return the last match in the second half of the part that fits; 0 if there is none."""
    places = [match.end() for match in where.finditer(text, most // 2, most)]
    return next((place for place in reversed(places) if place <= most), 0)
