"""Reading DOCX and EPUB, and archives that are bombs, broken, locked or something else."""

from __future__ import annotations

import struct
import zipfile

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_rag.readers import read_document, zip_documents
from hearthnet_rag.readers.documents import DOCX, EPUB
from tests.services.rag.made import docx, epub, packed, paragraph, repacked

CHAPTER = "<h1>Soup</h1><p>Boil the soup.</p>"
BOMB = b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "lol"><!ENTITY c "&b;&b;&b;">]><a>&c;</a>'
OUTSIDE = b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/hostname">]><a>&b;</a>'


def refusal(data: bytes, media_type: str = DOCX) -> HearthNetError:
    with pytest.raises(HearthNetError) as caught:
        read_document(data, media_type, "file")
    assert caught.value.code == "bad_request"
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.req("RAG-31", "RAG-34")
def test_docx_has_headings_lists_and_tables() -> None:
    cell = "<w:tc><w:p><w:r><w:t>{}</w:t></w:r></w:p></w:tc>"
    row = f"<w:tr>{cell.format('beans')}{cell.format('2 kg')}</w:tr>"
    outlined = '<w:p><w:pPr><w:outlineLvl w:val="1"/></w:pPr><w:r><w:t>By level</w:t></w:r></w:p>'
    listed = '<w:p><w:pPr><w:numPr><w:ilvl w:val="0"/></w:numPr></w:pPr><w:r><w:t>one thing</w:t></w:r></w:p>'
    made = docx(
        paragraph("Stores", "Heading1")
        + paragraph("Count them.")
        + paragraph("Dry food", "Heading2")
        + outlined
        + listed
        + f"<w:tbl>{row}<w:tr></w:tr></w:tbl>"
        + paragraph(" "),
        title="The larder",
    )
    document = read_document(made, name="larder.docx")
    assert (document.title, document.media_type) == ("The larder", DOCX)
    assert [(heading.level, heading.text) for heading in document.headings] == [
        (1, "Stores"),
        (2, "Dry food"),
        (2, "By level"),
    ]
    assert (
        document.body
        == "# Stores\n\nCount them.\n\n## Dry food\n\n## By level\n\n- one thing\n\nbeans | 2 kg"
    )
    assert all(document.body[heading.start :].startswith("#") for heading in document.headings)


@pytest.mark.req("RAG-31", "RAG-34")
def test_epub_has_its_chapters_in_order_and_says_who_it_is() -> None:
    facts = (
        "<dc:title>Kitchen</dc:title><dc:language>en-GB</dc:language><dc:date>2020-02-03T00:00:00Z</dc:date>"
    )
    made = epub({"two%20b.xhtml": CHAPTER, "one.xhtml": "<h2>Bread</h2><nav>1 2</nav>Bake."}, facts=facts)
    made = repacked(made, {"OEBPS/two b.xhtml": f"<html><body>{CHAPTER}</body></html>".encode()})
    document = read_document(made, name="kitchen.epub")
    assert (document.title, document.language, document.date) == ("Kitchen", "en", "2020-02-03")
    assert document.media_type == EPUB
    assert document.body == "# Soup\n\nBoil the soup.\n\n## Bread\n\nBake."


@pytest.mark.req("RAG-35")
@pytest.mark.parametrize("part", ["word/document.xml", "word/styles.xml", "docProps/core.xml"])
@pytest.mark.parametrize("xml", [BOMB, OUTSIDE, BOMB.decode().encode("utf-16")])
def test_a_docx_that_defines_entities_is_refused(part: str, xml: bytes) -> None:
    assert "defines entities" in refusal(docx(paragraph("x"), parts={part: xml})).message


@pytest.mark.req("RAG-35")
@pytest.mark.parametrize("part", ["META-INF/container.xml", "OEBPS/book.opf"])
@pytest.mark.parametrize("xml", [BOMB, OUTSIDE])
def test_an_epub_that_defines_entities_is_refused(part: str, xml: bytes) -> None:
    assert "defines entities" in refusal(epub({"a.xhtml": CHAPTER}, parts={part: xml})).message


@pytest.mark.req("RAG-35")
def test_entities_of_a_chapter_are_text_and_nothing_more() -> None:
    page = OUTSIDE.replace(b"<a>", b"<html><body><p>The host is ").replace(b"</a>", b"</p></body></html>")
    body = read_document(epub({"a.xhtml": ""}, parts={"OEBPS/a.xhtml": page})).body
    assert "The host is &b;" in body


@pytest.mark.req("RAG-35")
def test_a_locked_epub_is_refused_and_scrambled_fonts_are_no_lock() -> None:
    said = '<encryption xmlns:e="urn:e"><e:CipherReference URI="OEBPS/{}"/></encryption>'
    locked = epub({"a.xhtml": CHAPTER}, parts={"META-INF/encryption.xml": said.format("a.xhtml").encode()})
    assert "locked by its shop" in refusal(locked).message
    fonts = epub({"a.xhtml": CHAPTER}, parts={"META-INF/encryption.xml": said.format("b.otf").encode()})
    assert "Boil" in read_document(fonts).body


@pytest.mark.req("RAG-35")
@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"xl/workbook.xml": b"x"}, "is a spreadsheet (XLSX)"),
        ({"photo.jpg": b"x"}, "is a ZIP archive and no document"),
        ({"inner.zip": b"PK\3\4"}, "is a ZIP archive and no document"),
        ({"word/document.xml": b"x"}, "is broken, or no DOCX"),
        ({"META-INF/container.xml": b"<container/>"}, "its container names no book"),
        ({"META-INF/container.xml": b"no xml"}, "META-INF/container.xml is no XML"),
        ({"META-INF/container.xml": b'<c><rootfile full-path="../../b.opf"/></c>'}, "../../b.opf is missing"),
        (
            {"META-INF/container.xml": b'<c><rootfile full-path="x"/></c>', "x": b"<package/>"},
            "has no text in it",
        ),
    ],
)
def test_an_archive_that_is_no_document_is_refused_with_why(files: dict[str, bytes], words: str) -> None:
    assert words in refusal(packed(files)).message


@pytest.mark.req("RAG-35")
def test_names_that_lead_out_of_the_archive_lead_nowhere() -> None:
    made = epub({"../../../../etc/hostname": "", "a.xhtml": CHAPTER}, parts={"/etc/passwd": b"x"})
    assert read_document(made).body == "# Soup\n\nBoil the soup."


@pytest.mark.req("RAG-35")
def test_bombs_are_refused_before_they_are_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = docx("", parts={"word/media/a.xml": bytes(zip_documents._RATIO_FROM + 1)})
    many = packed({str(number): b"" for number in range(zip_documents.MOST_ENTRIES + 1)})
    usual, opened = docx(""), list[object]()
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *given: opened.append(given))
    assert "more than 200 to 1" in refusal(dense).message
    assert refusal(many).details["limit"] == zip_documents.MOST_ENTRIES
    monkeypatch.setattr(zip_documents, "MOST_UNPACKED", 1000)
    assert refusal(usual).details["limit"] == 1000
    assert opened == []


@pytest.mark.req("RAG-35")
def test_an_archive_that_says_less_than_it_holds_is_broken() -> None:
    honest = packed({"META-INF/container.xml": b"<c>" + bytes(range(97, 123)) * 40 + b"</c>"})
    size = struct.pack("<I", 1047)
    assert honest.count(size) == 2
    assert "is broken, or was cut off" in refusal(honest.replace(size, struct.pack("<I", 10))).message


@pytest.mark.req("RAG-35")
@pytest.mark.parametrize("cut", [40, 2000, -10])
def test_an_archive_that_was_cut_off_is_refused_as_broken(cut: int) -> None:
    assert "is broken, or was cut off" in refusal(docx(paragraph("x"))[:cut]).message


@pytest.mark.req("RAG-35")
def test_an_archive_with_a_password_is_refused_as_encrypted() -> None:
    data = bytearray(docx(paragraph("x")))
    at = 0
    while (at := data.find(b"PK\1\2", at)) >= 0:
        data[at + 8] |= 1
        at += 4
    assert "encrypted with a password" in refusal(bytes(data)).message
