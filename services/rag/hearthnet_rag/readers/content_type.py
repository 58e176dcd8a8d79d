"""Detection of a document's format by its first bytes, independently of its declared type."""

from __future__ import annotations

import re
from typing import Final, Literal

from hearthnet_rag.readers.documents import HTML, MARKDOWN, XHTML, rejected

Kind = Literal["markdown", "plain", "html", "pdf", "zip"]
_CAN: Final = "what can be read is PDF, HTML, Markdown, text, DOCX and EPUB"
_OTHERS: Final = (
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"BM", "a BMP image"),
    (b"II*\0", "a TIFF image"),
    (b"MM\0*", "a TIFF image"),
    (b"RIFF", "a WebP image or a sound or video file"),
    (b"\x1f\x8b", "a gzip archive: unpack it first"),
    (b"BZh", "a bzip2 archive: unpack it first"),
    (b"\xfd7zXZ\0", "an xz archive: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive: unpack it first"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive: unpack it first"),
    (b"Rar!", "a RAR archive: unpack it first"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"{\\rtf", "an RTF document: save it as DOCX or PDF"),
    (b"%!PS", "a PostScript document: turn it into a PDF first, for example with ps2pdf"),
    (b"ID3", "a sound file"),
    (b"OggS", "a sound or video file"),
    (b"fLaC", "a sound file"),
)
_OLD_OFFICE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED: Final = "EncryptedPackage".encode("utf-16-le")
_PDF_WITHIN: Final = 1024
_HTML: Final = re.compile(
    r"\s*+(?:<\?xml\b[^>]{0,200}\?>\s*+)?+(?><!--.{0,4000}?-->\s*+)*+<(?:!doctype\s+html|html|head|body)\b",
    re.IGNORECASE | re.DOTALL,
)
"""Nothing of it is tried twice: with backtracking, comments took time exponential in their number."""
_ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_HEAD: Final = 8192
_CONTROL: Final = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def kind_of(data: bytes, media_type: str, name: str | None) -> Kind:
    """Return the format of `data`.

    `media_type` decides only between Markdown, HTML without a typical beginning, and plain text.

    Raises:
        HearthNetError: `bad_request`, with the actual format in one line, if it cannot be read.
    """
    if not data.strip():
        raise rejected(name, "is empty")
    if data.startswith(_ZIP):
        return "zip"
    if b"%PDF-" in data[:_PDF_WITHIN] and not _begins_as_html(data):
        return "pdf"
    if other := _other(data):
        raise rejected(name, f"is {other}; {_CAN}")
    if _begins_as_html(data) or media_type in {HTML, XHTML}:
        return "html"
    return "markdown" if media_type == MARKDOWN else "plain"


def _begins_as_html(data: bytes) -> bool:
    head = data[:_HEAD]
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _HTML.match(head[2:].replace(b"\0", b"").decode("latin-1")) is not None
    return _HTML.match(head.removeprefix(b"\xef\xbb\xbf").decode("latin-1")) is not None


def _other(data: bytes) -> str | None:
    """Return the name of an unreadable format, or None if the data may be text."""
    if data.startswith(_OLD_OFFICE) and _ENCRYPTED in data:
        return "an Office document with a password: save it without one"
    if data.startswith(_OLD_OFFICE):
        return "an old Office document: save it as DOCX or PDF"
    if data[4:8] == b"ftyp":
        return "a sound, image or video file"
    found = next((what for magic, what in _OTHERS if data.startswith(magic)), None)
    if found is not None and _is_text(data):
        return found if data.startswith((b"{\\rtf", b"%!PS")) else None
    return found


def _is_text(data: bytes) -> bool:
    """Return whether the first bytes are text: UTF-8 without control characters.

    A text may begin with the signature of another format, such as `BM` or `MZ`.
    """
    head = data[:_HEAD].decode("utf-8", "replace").rstrip("\ufffd")
    return "\ufffd" not in head and not _CONTROL.search(head)
