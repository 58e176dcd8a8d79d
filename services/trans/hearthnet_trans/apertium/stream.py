"""Conversion of text to Apertium's stream format and back (docs/decisions/0122).

Text to keep is replaced by numbered blanks (`[0]`), so that no program changes it. The numbers must come back
complete and in order; otherwise `Lost` is raised instead of guessing. The programs mark words with `*`, `@`
and `#`; none of these comes from the text, because those characters are kept as well.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import groupby
from typing import Final

import msgspec

from hearthnet_trans.apertium.markup import Piece, pieces

_SENTENCE_ENDS: Final = ".[]"
"""Ends a sentence where a paragraph ends without a full stop, as Apertium's own tools do."""
_SPECIAL: Final = re.compile(r"([\[\]{}^$/\\@<>])")
_WORD: Final = re.compile(r"[^\W\d_]+")
_ANSWER: Final = re.compile(
    r"(?P<mark>\\?[*@#])|\\(?P<escaped>.)|\[(?P<number>\d+)\]|(?P<ends>\.?\[\])", re.DOTALL
)
_LEFT_BEHIND: Final = re.compile(r"(?<= ) +|(?<=\A[\"“«(¿¡]) +")


class Lost(Exception):
    """Raised when kept text did not come back complete and in order."""


class Encoded(msgspec.Struct, frozen=True):
    """A text in stream format, the texts of its numbered blanks, and its number of words."""

    stream: str
    kept: tuple[str, ...]
    words: int


class Decoded(msgspec.Struct, frozen=True):
    """The text that came back, and how many words were marked as unknown or not translated."""

    text: str
    marked: int


def encode(text: str) -> Encoded:
    """Return `text` in stream format."""
    stream: list[str] = []
    kept: list[str] = []
    words, open_sentence = 0, False
    runs = list(_runs(pieces(text)))
    for place, run in enumerate(runs):
        if run[0].kind == "text":
            plain = unicodedata.normalize("NFC", "".join(piece.text for piece in run))
            words += len(_WORD.findall(plain))
            open_sentence = True
            stream.append(_SPECIAL.sub(r"\\\1", plain))
        elif len(run) == 1 and run[0].kind == "space" and 0 < place < len(runs) - 1:
            stream.append(" ")
        else:
            if open_sentence and any(piece.kind == "break" for piece in run):
                stream.append(_SENTENCE_ENDS)
                open_sentence = False
            stream.append(f"[{len(kept)}]")
            kept.append("".join(piece.text for piece in run))
    return Encoded(_ended("".join(stream), open_sentence), tuple(kept), words)


def decode(answer: str, kept: tuple[str, ...]) -> Decoded:
    """Return the text in an answer of Apertium's programs.

    Raises:
        Lost: kept text is missing or has changed places.
    """
    text: list[str] = []
    numbers: list[int] = []
    words, start, marked = "", 0, 0
    for match in _ANSWER.finditer(answer):
        words += answer[start : match.start()]
        start = match.end()
        if match["number"] is not None:
            numbers.append(int(match["number"]))
            text += _spaced(words), kept[numbers[-1]] if numbers[-1] < len(kept) else ""
            words = ""
        elif match["mark"] is not None:
            marked += 1
        elif match["escaped"] is not None:
            words += match["escaped"]
    text.append(_spaced(words + answer[start:]))
    _check(numbers, kept)
    return Decoded("".join(text), marked)


def _spaced(words: str) -> str:
    """Remove spaces left behind by words that the programs dropped.

    `words` is the text between two blanks. An English pronoun is such a word. The input had single spaces,
    and none at its ends.
    """
    return _LEFT_BEHIND.sub("", words.strip(" "))


def _check(numbers: list[int], kept: tuple[str, ...]) -> None:
    """Raise unless all blanks came back once and in order.

    Spaces and single line breaks may change places together with their words.

    Raises:
        Lost: blanks are missing, doubled or in another order.
    """
    if sorted(numbers) != list(range(len(kept))):
        raise Lost(f"{len(kept)} blanks went in, and came back as {numbers[:20]}")
    markup = [number for number in numbers if not kept[number].isspace() or kept[number].count("\n") > 1]
    if markup != sorted(markup):
        raise Lost("markup has changed places")


def parts(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the stretches of `text`, each with whether it is to be translated."""
    for run in _runs(pieces(text)):
        yield run[0].kind == "text", "".join(piece.text for piece in run)


def _runs(found: Iterator[Piece]) -> Iterator[list[Piece]]:
    """Group adjacent pieces: text, or kept pieces with the white space around them."""
    for _, run in groupby(found, lambda piece: piece.kind == "text"):
        yield list(run)


def _ended(stream: str, open_sentence: bool) -> str:
    """Return `stream` with its last sentence ended before the blanks that follow it."""
    if not open_sentence:
        return stream
    body = re.sub(r"(?:\[\d+\]| )+\Z", "", stream)
    return body + _SENTENCE_ENDS + stream[len(body) :]
