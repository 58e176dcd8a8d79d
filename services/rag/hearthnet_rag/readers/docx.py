"""DOCX: paragraphs, lists and tables in order, with headings by style or outline level."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from hearthnet_rag.readers import safe_xml
from hearthnet_rag.readers.document_builder import Builder
from hearthnet_rag.readers.documents import DOCX, Document, language_of, one_line, rejected
from hearthnet_rag.readers.zip_documents import Archive

if TYPE_CHECKING:
    from docx.document import Document as Docx
    from docx.table import Table
    from docx.text.paragraph import Paragraph

_HEADING: Final = re.compile(r"heading (\d)", re.IGNORECASE)
_WORD: Final = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_OUTLINE: Final = f"{_WORD}outlineLvl"
_DEEPEST: Final = 9
_NESTED: Final = 8
"""Depth to which tables in tables are read."""


def read(archive: Archive, data: bytes, name: str | None) -> Document:
    """Read the document in `data`.

    Raises:
        HearthNetError: `bad_request`, in one line, if it is broken or has no text.
    """
    for path in sorted(archive.names):
        if path.endswith((".xml", ".rels")):
            safe_xml.check(archive.read(path), name, path)
    file = _opened(data, name)
    built = Builder(name)
    levels = _levels(file)
    for item in file.iter_inner_content():
        _add(built, item, levels)
    facts = file.core_properties
    date = facts.modified.date().isoformat() if facts.modified is not None else None
    return built.finish(DOCX, (one_line(facts.title) or "",), language_of(facts.language), date)


def _opened(data: bytes, name: str | None) -> Docx:
    import docx

    try:
        return docx.Document(io.BytesIO(data))
    except Exception as error:  # the library raises many types for a broken file
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise rejected(name, f"is broken, or no DOCX document ({why}); save it anew") from error


Level = Callable[["Paragraph"], int]


def _levels(file: Docx) -> Level:
    """Return a function from a paragraph to its heading level, or 0; each style is read once."""
    known: dict[str, int] = {}

    def level(paragraph: Paragraph) -> int:
        own = paragraph._p.pPr
        outline = own.find(_OUTLINE) if own is not None else None
        if outline is not None:
            return _level(outline)
        style = paragraph._p.style or ""
        if style not in known:
            known[style] = _style_level(paragraph)
        return known[style]

    return level


def _style_level(paragraph: Paragraph) -> int:
    style: Any = paragraph.style
    for _ in range(_DEEPEST):
        if style is None:
            return 0
        found = _HEADING.fullmatch(style.name or "")
        if found:
            return int(found[1])
        if style.name == "Title":
            return 1
        outline = style.element.find(f".//{_OUTLINE}")
        if outline is not None:
            return _level(outline)
        style = style.base_style
    return 0


def _level(outline: Any) -> int:
    value = outline.get(f"{_WORD}val") or ""
    level = int(value) + 1 if value.isdigit() else 0
    return level if level <= _DEEPEST else 0


def _add(built: Builder, item: Paragraph | Table, level: Level) -> None:
    from docx.table import Table

    if isinstance(item, Table):
        built.block("\n".join(_rows(item)))
        return
    text, depth = item.text, level(item)
    if depth:
        built.heading(depth, text)
        return
    properties = item._p.pPr
    listed = properties is not None and properties.numPr is not None
    built.block(f"- {text.strip()}" if listed and text.strip() else text.strip())


def _rows(table: Table, depth: int = 0) -> Iterator[str]:
    """Yield each row of a table as one line; a cell that spans several columns appears once."""
    for row in table.rows:
        cells = {id(cell._tc): cell for cell in row.cells}.values()
        shown = [" ".join(_cell(cell, depth).split()) for cell in cells]
        if any(shown):
            yield " | ".join(shown)


def _cell(cell: Any, depth: int) -> str:
    inner = [line for table in cell.tables for line in _rows(table, depth + 1)] if depth < _NESTED else []
    return " ".join([cell.text, *inner])
