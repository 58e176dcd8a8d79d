"""Text to Apertium's stream format and back (docs/decisions/0122).

What is to be kept stands in the stream as a numbered blank (`[0]`), so that no program sees it; the numbers
have to come back complete and in order, else `Lost` is raised and nothing is guessed. Of the marks that the
programs put before words, `*`, `@` and `#`, none can come from the text: those characters are kept as well.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

import msgspec

from hearthnet_trans.apertium.markup import Piece, pieces

_SENTENCE_ENDS: Final = ".[]"
"""As Apertium's own tools end a sentence where a paragraph ends without a full stop."""
_SPECIAL: Final = re.compile(r"([\[\]{}^$/\\@<>])")
_WORD: Final = re.compile(r"[^\W\d_]+")
_ANSWER: Final = re.compile(
    r"(?P<mark>\\?[*@#])|\\(?P<escaped>.)|\[(?P<number>\d+)\]|(?P<ends>\.?\[\])", re.DOTALL
)


_LEFT_BEHIND: Final = re.compile(r"(?<= ) +|(?<=\A[\"“«(¿¡]) +")


class Lost(Exception):
    """What was to be kept did not come back whole."""


class Encoded(msgspec.Struct, frozen=True):
    """A text in stream format, what its numbered blanks stand for, and how many words it has."""

    stream: str
    kept: tuple[str, ...]
    words: int


class Decoded(msgspec.Struct, frozen=True):
    """The text that came back, and how many of its words bore a mark: not known, or not translated."""

    text: str
    marked: int


def encode(text: str) -> Encoded:
    """`text` as Apertium's programs take it."""
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


def decode(said: str, kept: tuple[str, ...]) -> Decoded:
    """The text in an answer of Apertium's programs; raises `Lost`."""
    text: list[str] = []
    numbers: list[int] = []
    words, start, marked = "", 0, 0
    for match in _ANSWER.finditer(said):
        words += said[start : match.start()]
        start = match.end()
        if match["number"] is not None:
            numbers.append(int(match["number"]))
            text += _spaced(words), kept[numbers[-1]] if numbers[-1] < len(kept) else ""
            words = ""
        elif match["mark"] is not None:
            marked += 1
        elif match["escaped"] is not None:
            words += match["escaped"]
    text.append(_spaced(words + said[start:]))
    _check(numbers, kept)
    return Decoded("".join(text), marked)


def _spaced(words: str) -> str:
    """Words between two blanks without the spaces that words which the programs left out, such as an English
    pronoun, leave behind: what went in has single spaces, and none at its ends.
    """
    return _LEFT_BEHIND.sub("", words.strip(" "))


def _check(numbers: list[int], kept: tuple[str, ...]) -> None:
    """Raises `Lost` unless all came back once, and in order; a space or line break may go with its words."""
    if sorted(numbers) != list(range(len(kept))):
        raise Lost(f"{len(kept)} blanks went in, and came back as {numbers[:20]}")
    markup = [number for number in numbers if not kept[number].isspace() or kept[number].count("\n") > 1]
    if markup != sorted(markup):
        raise Lost("markup has changed places")


def parts(text: str) -> Iterator[tuple[bool, str]]:
    """`text` in pieces, each with whether it is to be translated: where the whole came back damaged."""
    for run in _runs(pieces(text)):
        yield run[0].kind == "text", "".join(piece.text for piece in run)


def _runs(found: Iterator[Piece]) -> Iterator[list[Piece]]:
    """Neighbours that are alike together: text, or what is kept with the white space around it."""
    run: list[Piece] = []
    for piece in found:
        if run and (run[-1].kind == "text") is not (piece.kind == "text"):
            yield run
            run = []
        run.append(piece)
    if run:
        yield run


def _ended(stream: str, open_sentence: bool) -> str:
    """With the last sentence ended before the blanks that follow it."""
    if not open_sentence:
        return stream
    body = re.sub(r"(?:\[\d+\]| )+\Z", "", stream)
    return body + _SENTENCE_ENDS + stream[len(body) :]
