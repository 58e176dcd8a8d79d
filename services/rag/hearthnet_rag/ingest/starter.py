"""The starter corpus `system`: documents shipped with the program, read-only.

It is the same on every node.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files
from typing import Final, NamedTuple

from hearthnet.core import content_hash, new_ulid
from hearthnet_rag.index.index import Index, IndexEntry
from hearthnet_rag.readers import read_document
from hearthnet_rag.readers.documents import MARKDOWN, Document

CORPUS: Final = "system"
STAGE: Final = "reading the starter corpus"


class StarterFile(NamedTuple):
    """One document as shipped."""

    name: str
    doc_cid: str
    data: bytes


def starter_files() -> list[StarterFile]:
    """Return the starter documents by name."""
    folder = files("hearthnet_rag") / "starter"
    found = sorted(
        (item for item in folder.iterdir() if item.name.endswith(".md")), key=lambda item: item.name
    )
    return [StarterFile(item.name, content_hash(data := item.read_bytes()), data) for item in found]


def bring_up_to_date(
    index: Index, shipped: list[StarterFile], progress: Callable[[str, int, int], None]
) -> int:
    """Make corpus `system` contain exactly the documents `shipped`; return how many were read.

    Unchanged documents are skipped. The old version of a document is removed after the new one is added, so
    that a crash in between leaves one too many instead of one too few, which the next start repairs.
    """
    present = set(index.documents(CORPUS))
    missing = [file for file in shipped if file.doc_cid not in present]
    for number, file in enumerate(missing):
        progress(STAGE, number, len(missing))
        index.add(CORPUS, _entry(file))
    if missing:
        progress(STAGE, len(missing), len(missing))
    if gone := sorted(present - {file.doc_cid for file in shipped}):
        index.remove(CORPUS, gone)
    return len(missing)


def year_of(date: str | None) -> int | None:
    """Return the year in a date such as 2026-11-21, 21.11.2026 or 2026, or None."""
    found = re.search(r"(?<!\d)[12]\d{3}(?!\d)", date or "")
    return int(found[0]) if found else None


def _entry(file: StarterFile) -> IndexEntry:
    document = read_document(file.data, MARKDOWN, file.name)
    return IndexEntry(file.doc_cid, document, new_ulid(), year_of(document.date), _metadata(file, document))


def _metadata(file: StarterFile, document: Document) -> dict[str, object]:
    return {"path": file.name, "date": document.date, "sources": list(document.sources)}
