"""Separation of language from markup, addresses and code, which must stay unchanged."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from html import unescape
from itertools import groupby
from typing import Final, Literal, NamedTuple

Kind = Literal["text", "space", "kept", "break"]
_LONGEST_WORD: Final = 80
"""Longer words are in no dictionary, and take Apertium much time."""
_JOINERS: Final = "\u200c\u200d"
_RESERVED: Final = frozenset("{}^\\@<>|~*#_`\u2028\u2029")
"""Characters with a meaning for Apertium's programs or in the marks of their answers."""

_UNTRANSLATED: Final = re.compile(
    r"""
    (?P<break> (?:^|(?<=\n)) [ \t]* (?:[-+*>]|\#{1,6}|\d{1,3}[.)]) [ \t]+        # list, quote, heading
      | </?(?:p|div|h[1-6]|ul|ol|li|table|tr|td|th|br|hr|title|blockquote|section|article|dt|dd)\b[^<>]*>
      | (?:^|(?<=\s)) \| (?=\s|\Z)                                              # between cells
      | \s* (?:\r\n|\n|\r(?!\n)) [ \t]* (?:\r\n|\n|\r(?!\n)) \s* )            # a line left empty
  | (?P<kept> ```[\s\S]*?(?:```|\Z) | `[^`\n]+`                                  # code
      | <!--[\s\S]*?--> | <(script|style|pre|code|kbd)\b[^<>]*>[\s\S]*?</\3\s*>
      | </?[A-Za-z][A-Za-z0-9:-]*(?:\s[^<>]*)?/?> | <[!?][^<>]*>                 # tags
      | !?\[(?=[^\[\]\n]*\]\() | \]\([^()\n]*\)                                  # links
      | (?:https?|ftp)://[^\s<>"]*[^\s<>".,;:!?)\]] | mailto:\S+
      | [\w.+-]+@[\w-]+(?:\.[\w-]+)+
      | \$?\{\{?[\w.]*\}?\} | %\(\w+\)[sd] | %[sd]\b )                           # placeholders
  | (?P<entity> &(?:[A-Za-z][A-Za-z0-9]{1,30}|\#\d{1,7}|\#x[0-9A-Fa-f]{1,6}); )
    """,
    re.VERBOSE,
)
_RUNS: Final = re.compile(r"\s+|\S+")


class Piece(NamedTuple):
    """A part of a text: to translate, one space, kept, or kept and ending a sentence."""

    kind: Kind
    text: str


def pieces(text: str) -> Iterator[Piece]:
    """Yield the parts of `text`.

    Together they are the whole text, except that letters written as entities are returned as letters.
    """
    start = 0
    for match in _UNTRANSLATED.finditer(text):
        yield from _plain(text[start : match.start()])
        start = match.end()
        whole = match[0]
        if match["entity"] and (letter := unescape(whole)).isalpha():
            yield from _plain(letter)
        else:
            yield Piece("break" if match["break"] else "kept", whole)
    yield from _plain(text[start:])


def _plain(text: str) -> Iterator[Piece]:
    """Yield words with their punctuation, spaces, and characters hidden from Apertium."""
    for run in _RUNS.finditer(text):
        part = run[0]
        if part == " ":
            yield Piece("space", part)
        elif part.isspace() or len(part) > _LONGEST_WORD:
            yield Piece("kept", part)
        else:
            for is_text, characters in groupby(part, _is_text):
                yield Piece("text" if is_text else "kept", "".join(characters))


@lru_cache(maxsize=4096)
def _is_text(character: str) -> bool:
    """Return whether Apertium receives `character`.

    It receives letters, marks, digits and common punctuation of the first plane.
    """
    if character in _RESERVED or ord(character) > 0xFFFF:
        return False
    category = unicodedata.category(character)
    return category[0] in "LMNP" or category in ("Sm", "Sc") or character in _JOINERS or character == "°"
