"""Plain text, and how bytes become text for all readers: its mark, UTF-8, else what the bytes look like."""

from __future__ import annotations

import codecs
import re
from itertools import pairwise
from typing import Final

from hearthnet.service import language
from hearthnet_rag.documents import PLAIN, Document, refused, title_of

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ENOUGH: Final = 32
"""So many bytes beyond ASCII it takes to tell one old encoding from another."""
_SEEN: Final = 65_536
_MOST_NOISE: Final = 0.1
_MOST_BEYOND: Final = 0.25
_BY_LANGUAGE: Final = {
    "cp1250": {"bs", "cs", "hr", "hu", "pl", "ro", "sk", "sl", "sq"},
    "cp1254": {"az", "tr"},
    "cp1257": {"et", "lt", "lv"},
}
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
_LETTER: Final = re.compile("[A-Za-z]")
_BEYOND: Final = re.compile(r"\S*[^\x00-\x7f]\S*")
_EDGES: Final = re.compile(r"^[\W\d_]+|[\W\d_]+$")
_LOW: Final = "\u201a\u201e"
"""Marks that begin a quotation, and are letters (é, ä) in the encodings of DOS."""
_WITHIN: Final = "\u2019\u00b7\u2013\u2014/\xad"


def read(data: bytes, name: str | None) -> Document:
    """The document in `data`; `bad_request` with one line that says why, where it is none."""
    text = decode(data, name)
    if not text.strip():
        raise refused(name, "has no text in it")
    return Document(title=title_of(name, first_line(text)), body=text, media_type=PLAIN)


def decode(data: bytes, name: str | None) -> str:
    """`data` as text with `\\n` at the end of lines.

    `bad_request` where it is empty, has NUL bytes, or is in an encoding that cannot be told for sure.
    """
    if not data.strip():
        raise refused(name, "is empty")
    mark = next(((mark, encoding) for mark, encoding in _MARKS if data.startswith(mark)), None)
    text = _unmarked(data, name) if mark is None else _marked(data[len(mark[0]) :], mark[1], name)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def first_line(text: str) -> str:
    """The first line of `text` that is not blank, which there has to be."""
    return next(line.strip() for line in text.splitlines() if line.strip())


def _marked(data: bytes, encoding: str, name: str | None) -> str:
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        shown = encoding.upper()
        raise refused(name, f"is not {shown} text (byte {error.start}); save it as UTF-8") from error
    if "\0" in text:
        raise refused(name, "is not text (it has NUL bytes)")
    return text


def _unmarked(data: bytes, name: str | None) -> str:
    if b"\0" in data:
        raise refused(name, "is not text (it has NUL bytes); save it as text in UTF-8")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        text = _guessed(data)
        if text is None:
            raise refused(name, f"is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
        return text


def _guessed(data: bytes) -> str | None:
    """`data` in the one old encoding that gives sensible words; None where that is not sure."""
    if sum(byte >= 0x80 for byte in data[:_SEEN]) < _ENOUGH:
        return _few(data)
    from charset_normalizer import from_bytes

    best = from_bytes(data[:_SEEN]).best()
    if best is None or best.chaos > _MOST_NOISE or best.coherence <= 0:
        return _few(data)
    try:
        return data.decode(best.encoding)
    except UnicodeDecodeError:
        return None


def _few(data: bytes) -> str | None:
    """`data` with a few letters beyond ASCII: in the old Windows encoding of its language, where these make
    words with the ASCII letters beside them; None where they do not.
    """
    try:
        text = data.decode(_windows(data))
    except UnicodeDecodeError:
        return None
    beyond = sum(letter > "\x7f" for letter in text)
    if _CONTROL.search(text) or not _LETTER.search(text) or beyond > max(2, len(text) * _MOST_BEYOND):
        return None
    return text if all(_fits(word) and not _is_mixed(word) for word in _BEYOND.findall(text)) else None


def _windows(data: bytes) -> str:
    found = language.detect(data[:_SEEN].decode("ascii", "ignore"))
    return next((name for name, codes in _BY_LANGUAGE.items() if found and found.language in codes), "cp1252")


def _is_mixed(word: str) -> bool:
    """Whether a letter beyond ASCII stands as in no word, such as `GrŸn`, `20 øC` or `œ5`.

    It would be another one in the encoding of DOS or of old Macs.
    """
    if len(word) > 1 and word[0] > "\x7f" and word[0].isalpha() and word[1].isdigit():
        return True
    for before, letter in pairwise(word):
        if letter in _LOW and before.isalnum():
            return True
        if before.islower() and letter.isupper() and not (before.isascii() and letter.isascii()):
            return True
    return False


def _fits(word: str) -> bool:
    """Whether letters in `word` are mostly ASCII, or it is no word but signs at the edge of one."""
    core = _EDGES.sub("", word)
    if any(not (letter.isalpha() or letter in _WITHIN) for letter in core if letter > "\x7f"):
        return False
    return sum(letter > "\x7f" for letter in core) <= max(1, len(core) // 2)
