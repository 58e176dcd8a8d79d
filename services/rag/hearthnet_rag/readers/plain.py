"""Plain text, and the decoding of bytes for all readers.

The encoding is that of the byte order mark, UTF-8, or else guessed.
"""

from __future__ import annotations

import codecs
import re
from itertools import pairwise
from typing import Final

from hearthnet.text import detect_language
from hearthnet_rag.readers.documents import PLAIN, Document, rejected, title_of

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ENOUGH: Final = 32
"""Bytes beyond ASCII needed to tell one legacy encoding from another."""
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
_ANY_LETTER: Final = re.compile(r"[^\W\d_]")
_LOW: Final = "\u201a\u201e"
"""Characters that open a quotation, and are letters (é, ä) in DOS encodings."""
_WITHIN: Final = "\u2019\u00b7\u2013\u2014/\xad"


def read(data: bytes, name: str | None) -> Document:
    """Read the document in `data`.

    Raises:
        HearthNetError: `bad_request`, with the reason in one line, if it is not text.
    """
    text = decode(data, name)
    if not text.strip():
        raise rejected(name, "has no text in it")
    return Document(title=title_of(name, first_line(text)), body=text, media_type=PLAIN)


def decode(data: bytes, name: str | None) -> str:
    """Return `data` as text with LF at the end of lines.

    Raises:
        HearthNetError: `bad_request` if it is empty, has NUL bytes, or has an encoding that is not certain.
    """
    if not data.strip():
        raise rejected(name, "is empty")
    mark = next(((mark, encoding) for mark, encoding in _MARKS if data.startswith(mark)), None)
    text = _unmarked(data, name) if mark is None else _marked(data[len(mark[0]) :], mark[1], name)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def first_line(text: str) -> str:
    """Return the first line of `text` that is not blank; there must be one."""
    return next(line.strip() for line in text.splitlines() if line.strip())


def _marked(data: bytes, encoding: str, name: str | None) -> str:
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        shown = encoding.upper()
        raise rejected(name, f"is not {shown} text (byte {error.start}); save it as UTF-8") from error
    if "\0" in text:
        raise rejected(name, "is not text (it has NUL bytes)")
    return text


def _unmarked(data: bytes, name: str | None) -> str:
    if b"\0" in data:
        raise rejected(name, "is not text (it has NUL bytes); save it as text in UTF-8")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        text = _guessed(data)
        if text is None:
            raise rejected(name, f"is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
        return text


def _guessed(data: bytes) -> str | None:
    """Return `data` decoded from a legacy encoding, or None if that is not certain."""
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
    """Decode `data` with few letters beyond ASCII in the Windows encoding of its language.

    Returns None if the result is implausible: these letters must form words with the ASCII letters beside
    them.
    """
    try:
        text = data.decode(_windows(data))
    except UnicodeDecodeError:
        return None
    beyond = sum(letter > "\x7f" for letter in text)
    if _CONTROL.search(text) or not _LETTER.search(text) or beyond > max(2, len(text) * _MOST_BEYOND):
        return None
    words = (word for word in text.split() if not word.isascii())
    return text if all(_fits(word) and not _is_mixed(word) for word in words) else None


def _windows(data: bytes) -> str:
    found = detect_language(data[:_SEEN].decode("ascii", "ignore"))
    return next((name for name, codes in _BY_LANGUAGE.items() if found and found.language in codes), "cp1252")


def _is_mixed(word: str) -> bool:
    """Return whether a letter beyond ASCII is in an implausible position, as in `GrŸn`.

    Other examples are `20 øC` and `œ5`. Such text is in an encoding of DOS or of old Macs, in which the byte
    is another character.
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
    """Return whether letters in `word` are mostly ASCII, or it has only signs at its edges."""
    first, last = _ANY_LETTER.search(word), _ANY_LETTER.search(word[::-1])
    core = word[first.start() : len(word) - last.start()] if first and last else ""
    if any(not (letter.isalpha() or letter in _WITHIN) for letter in core if letter > "\x7f"):
        return False
    return sum(letter > "\x7f" for letter in core) <= max(1, len(core) // 2)
