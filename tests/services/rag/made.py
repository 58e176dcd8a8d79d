"""Documents of all formats, made here: whole ones, and ones that are not to be trusted."""

from __future__ import annotations

import hashlib
import io
import struct
import zipfile
from collections.abc import Sequence
from typing import Any

_PAD = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")
_ID = b"0123456789abcdef"
IMAGE = b"q 500 0 0 700 50 50 cm /Im Do Q"


class Pdf:
    """A small PDF writer: numbered objects, a table of where they are, and RC4 where there are passwords."""

    def __init__(self, password: str | None = None) -> None:
        self._objects: list[bytes] = []
        self._key: bytes | None = None
        self._encrypt = b""
        if password is not None:
            self._lock(password)

    def add(self, text: str, stream: bytes | None = None) -> int:
        """Adds an object, `text` its dictionary; returns its number."""
        number = len(self._objects) + 1
        data = text.encode("latin-1")
        if stream is not None:
            body = stream if self._key is None else _rc4(_object_key(self._key, number), stream)
            data = data[:-2] + b" /Length %d >>\nstream\n%s\nendstream" % (len(body), body)
        self._objects.append(data)
        return number

    def put(self, number: int, text: str) -> None:
        """Sets an object that was added before."""
        self._objects[number - 1] = text.encode("latin-1")

    def finish(self, root: int, info: int | None) -> bytes:
        """The file."""
        out, places = bytearray(b"%PDF-1.4\n"), []
        for number, data in enumerate(self._objects, start=1):
            places.append(len(out))
            out += b"%d 0 obj\n%s\nendobj\n" % (number, data)
        start = len(out)
        out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(places) + 1)
        out += b"".join(b"%010d 00000 n \n" % place for place in places)
        more = b"" if info is None else b" /Info %d 0 R" % info
        out += b"trailer\n<< /Size %d /Root %d 0 R%s%s >>\n" % (len(places) + 1, root, more, self._encrypt)
        return bytes(out + b"startxref\n%d\n%%%%EOF\n" % start)

    def _lock(self, password: str) -> None:
        user, permissions = _padded(password), -44
        owner = _rc4(hashlib.md5(_padded("owner")).digest()[:5], user)
        said = struct.pack("<i", permissions)
        self._key = hashlib.md5(user + owner + said + _ID).digest()[:5]
        check = _rc4(self._key, _PAD)
        first, second, third = (value.hex().encode() for value in (_ID, owner, check))
        self._encrypt = b" /ID [<%s> <%s>] /Encrypt << /Filter /Standard" % (first, first)
        self._encrypt += b" /V 1 /R 2 /O <%s> /U <%s> /P %d >>" % (second, third, permissions)


def pdf(
    pages: Sequence[str | bytes],
    title: str = "",
    outline: Sequence[tuple[str, int]] = (),
    password: str | None = None,
    annotations: Sequence[str] = (),
) -> bytes:
    """A PDF of `pages`: text, or drawing operators as bytes. `outline` names pages from 0; `annotations` are
    the dictionaries of those on each page, fields of a form where they are widgets.
    """
    file = Pdf(password)
    root, tree = file.add(""), file.add("")
    font = file.add("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
    image = file.add(
        "<< /Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8 >>",
        b"\x80",
    )
    notes = [file.add(f"<< /Type /Annot /Rect [50 600 250 620] {each} >>") for each in annotations]
    placed = " ".join(f"{note} 0 R" for note in notes)
    kids = []
    for page in pages:
        content = file.add("<<  >>", page if isinstance(page, bytes) else _written(page))
        kids.append(
            file.add(
                f"<< /Type /Page /Parent {tree} 0 R /MediaBox [0 0 612 792] /Contents {content} 0 R "
                f"/Resources << /Font << /F1 {font} 0 R >> /XObject << /Im {image} 0 R >> >> "
                f"/Annots [{placed}] >>"
            )
        )
    listed = " ".join(f"{kid} 0 R" for kid in kids)
    file.put(tree, f"<< /Type /Pages /Kids [{listed}] /Count {len(kids)} >>")
    leads = f" /Outlines {_outline(file, outline, kids)} 0 R" if outline else ""
    form = f" /AcroForm << /Fields [{placed}] /DR << /Font << /F1 {font} 0 R >> >> >>" if notes else ""
    file.put(root, f"<< /Type /Catalog /Pages {tree} 0 R{leads}{form} >>")
    info = file.add(f"<< /Title ({title}) /CreationDate (D:20240229120000Z) >>") if title else None
    return file.finish(root, info)


def docx(body: str, title: str = "", parts: dict[str, bytes] | None = None) -> bytes:
    """A DOCX with `body` as the XML of its paragraphs."""
    import docx as library

    empty = library.Document()
    empty.core_properties.title = title
    made = io.BytesIO()
    empty.save(made)
    root = (
        '<?xml version="1.0" encoding="UTF-8"?><w:document '
        'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
        f"<w:body>{body}</w:body></w:document>"
    )
    return repacked(made.getvalue(), {"word/document.xml": root.encode(), **(parts or {})})


def paragraph(text: str, style: str = "") -> str:
    """One paragraph of a DOCX."""
    styled = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{styled}<w:r><w:t>{text}</w:t></w:r></w:p>"


def epub(chapters: dict[str, str], parts: dict[str, bytes] | None = None, facts: str = "") -> bytes:
    """An EPUB of `chapters`: file name and what stands in the body of each."""
    container = (
        '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
    )
    items = "".join(
        f'<item id="c{number}" href="{name}" media-type="application/xhtml+xml"/>'
        for number, name in enumerate(chapters)
    )
    spine = "".join(f'<itemref idref="c{number}"/>' for number in range(len(chapters)))
    book = (
        '<package xmlns="http://www.idpf.org/2007/opf"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"{facts}</metadata><manifest>{items}</manifest><spine>{spine}</spine></package>"
    )
    files = {"mimetype": b"application/epub+zip", "META-INF/container.xml": container.encode()}
    files["OEBPS/book.opf"] = book.encode()
    for name, body in chapters.items():
        page = f'<html xmlns="http://www.w3.org/1999/xhtml"><head><title/></head><body>{body}</body></html>'
        files[f"OEBPS/{name}"] = page.encode()
    return packed({**files, **(parts or {})})


def packed(files: dict[str, Any]) -> bytes:
    """A ZIP archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def repacked(archive: bytes, files: dict[str, bytes]) -> bytes:
    """The same archive with `files` in place of what had their names."""
    with zipfile.ZipFile(io.BytesIO(archive)) as old:
        kept = {name: old.read(name) for name in old.namelist()}
    return packed({**kept, **files})


def _written(text: str) -> bytes:
    lines = [line.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)") for line in text.split("\n")]
    shown = " ".join(f"({line}) Tj T*" for line in lines)
    return f"BT /F1 11 Tf 50 750 Td 13 TL {shown} ET".encode("cp1252")


def _outline(file: Pdf, outline: Sequence[tuple[str, int]], kids: list[int]) -> int:
    root = file.add("")
    entries = [file.add("") for _ in outline]
    for at, ((title, page), number) in enumerate(zip(outline, entries, strict=True)):
        before = f" /Prev {entries[at - 1]} 0 R" if at else ""
        after = f" /Next {entries[at + 1]} 0 R" if at + 1 < len(entries) else ""
        file.put(
            number,
            f"<< /Title ({title}) /Parent {root} 0 R{before}{after} /Dest [{kids[page]} 0 R /Fit] >>",
        )
    file.put(root, f"<< /First {entries[0]} 0 R /Last {entries[-1]} 0 R /Count {len(entries)} >>")
    return root


def _padded(password: str) -> bytes:
    return (password.encode("latin-1") + _PAD)[:32]


def _object_key(key: bytes, number: int) -> bytes:
    return hashlib.md5(key + struct.pack("<I", number)[:3] + b"\0\0").digest()[:10]


def _rc4(key: bytes, data: bytes) -> bytes:
    state, j = list(range(256)), 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    out, i, j = bytearray(), 0, 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        out.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(out)
