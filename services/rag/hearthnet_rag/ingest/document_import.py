"""Documents as index entries: those that are sent, and the starter corpus `system`.

Of a sent document, data of the sender has priority. The starter corpus is shipped with the program,
read-only, and the same on every node.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from importlib.resources import files
from typing import Any, Final, NamedTuple

import msgspec

from hearthnet import HearthNetError
from hearthnet.core import content_hash, new_ulid
from hearthnet.text import detect_language
from hearthnet_rag.index.index import Index, IndexEntry
from hearthnet_rag.index.journal import Record
from hearthnet_rag.readers import OnProgress, read_document
from hearthnet_rag.readers.documents import MARKDOWN, Document, file_name, rejected
from hearthnet_rag.readers.pool import ReaderPool

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
    metadata = {"path": file.name, "date": document.date, "sources": list(document.sources)}
    return IndexEntry(file.doc_cid, document, new_ulid(), year_of(document.date), metadata)


LARGEST_BYTES: Final = 32 * 1024 * 1024
METADATA_BYTES: Final = 16 * 1024


def entry_of(readers: ReaderPool, record: Record, data: bytes, on_progress: OnProgress) -> IndexEntry:
    """Return the document in `data` as an index entry. Blocks while the document is read.

    Raises:
        HearthNetError: `bad_request` if it cannot be read, or if it or its metadata are too large.
    """
    check_size(record, len(data))
    given, path, name = record.metadata, record.metadata.get("path"), _name(record)
    document = _described(readers.read(data, record.media_type, name, on_progress), record)
    metadata = _metadata(document, given, name)
    year = given.get("year") or year_of(metadata["date"])
    return IndexEntry(record.doc_cid, document, record.event_id, year, metadata, path)


def check_size(record: Record, size: int) -> None:
    """Check the size of a document, in bytes.

    Raises:
        HearthNetError: `bad_request` if it is too large.
    """
    if size > LARGEST_BYTES:
        raise rejected(
            _name(record), f"has {size} bytes, more than {LARGEST_BYTES}; split it", limit=LARGEST_BYTES
        )


def _name(record: Record) -> str | None:
    path = record.metadata.get("path")
    return file_name(path) if path else None


def _described(read: Document, record: Record) -> Document:
    language = record.language or read.language
    if language is None and (detected := detect_language(read.body)) is not None:
        language = detected.language
    return dataclasses.replace(read, title=record.title or read.title, language=language)


def _metadata(document: Document, given: dict[str, Any], name: str | None) -> dict[str, Any]:
    source = given.get("source")
    sources = given.get("sources") or list(document.sources) or ([source] if source else [])
    metadata = {**given, "path": name, "date": given.get("date") or document.date, "sources": sources}
    if len(msgspec.json.encode(metadata)) > METADATA_BYTES:
        raise HearthNetError(
            "bad_request",
            f"the metadata is longer than {METADATA_BYTES} bytes; give less of it",
            details={"path": "/input/metadata", "limit": METADATA_BYTES},
        )
    return metadata
