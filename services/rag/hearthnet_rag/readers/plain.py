"""Plain text, and how bytes become text for all readers: its mark, UTF-8, else what the bytes look like."""

from __future__ import annotations

import codecs
from typing import Final

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
        return None
    from charset_normalizer import from_bytes

    best = from_bytes(data[:_SEEN]).best()
    if best is None or best.chaos > _MOST_NOISE or best.coherence <= 0:
        return None
    try:
        return data.decode(best.encoding)
    except UnicodeDecodeError:
        return None
