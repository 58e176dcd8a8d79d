"""A page of the handbook as a document of a corpus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from hearthnet.canonical import content_hash
from hearthnet_rag.documents import Document
from hearthnet_rag.index import Entry, Index
from hearthnet_rag.readers.markdown import find_headings
from tests.quality.handbook import pages

_XHTML: Final = "{http://www.w3.org/1999/xhtml}"
_LEFT_OUT: Final = frozenset({"toc", "docnav", "docnav top"})
_KINDS: Final = (["section"], ["chapter"], ["appendix"], ["preface"])
_BLOCKS: Final = frozenset(
    {"p", "div", "li", "dt", "dd", "tr", "table", "pre", "ul", "ol", "dl", "blockquote"}
)


def corpus_of(language: str) -> str:
    """The corpus that `ingest` fills."""
    return f"handbook-{language}"


def ingest(index: Index, language: str) -> int:
    """Adds every page of the book in `language` to its corpus; how many passages that made."""
    return sum(_add(index, language, page) for page in pages(language))


def _add(index: Index, language: str, page: Path) -> int:
    entry = Entry(content_hash(page.read_bytes()), _document(page, language), "01", 2022, {"path": page.name})
    return index.add(corpus_of(language), entry).chunks


def _document(page: Path, language: str) -> Document:
    root = ElementTree.parse(page).getroot()
    title = " ".join((root.findtext(f".//{_XHTML}title") or page.stem).split())
    body = next(part for part in root.iter(f"{_XHTML}div") if (part.get("class") or "").split()[:1] in _KINDS)
    text = "\n\n".join(block for block in map(str.strip, "".join(_lines(body)).split("\n\n")) if block)
    return Document(title, text, language, headings=tuple(find_headings(text)))


def _lines(element: ElementTree.Element) -> Iterator[str]:
    name = element.tag.removeprefix(_XHTML)
    if (element.get("class") or "") in _LEFT_OUT:
        return
    if len(name) == 2 and name[0] == "h" and name[1].isdigit():
        yield f"\n\n{'#' * int(name[1])} {' '.join(''.join(element.itertext()).split())}\n\n"
        return
    yield "\n\n" if name in _BLOCKS else ""
    yield element.text or ""
    for child in element:
        yield from _lines(child)
        yield child.tail or ""
    yield "\n\n" if name in _BLOCKS else ""
