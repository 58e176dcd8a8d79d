"""Conversion of a document's bytes into an index entry; data of the sender has priority."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import msgspec

from hearthnet import HearthNetError
from hearthnet.text import detect_language
from hearthnet_rag.index.index import IndexEntry
from hearthnet_rag.index.journal import Record
from hearthnet_rag.ingest.starter import year_of
from hearthnet_rag.readers import Told
from hearthnet_rag.readers.documents import Document, file_name, rejected
from hearthnet_rag.readers.pool import Readers

LARGEST_BYTES: Final = 32 * 1024 * 1024
METADATA_BYTES: Final = 16 * 1024


def entry_of(readers: Readers, record: Record, data: bytes, told: Told) -> IndexEntry:
    """Return the document in `data` as an index entry. Blocks while the document is read.

    Raises:
        HearthNetError: `bad_request` if it cannot be read, or if it or its metadata are too large.
    """
    given = record.metadata
    path = given.get("path")
    name = file_name(path) if path else None
    if len(data) > LARGEST_BYTES:
        raise rejected(
            name, f"has {len(data)} bytes, more than {LARGEST_BYTES}; split it", limit=LARGEST_BYTES
        )
    document = _described(readers.read(data, record.media_type, name, told), record)
    metadata = _metadata(document, given, name)
    year = given.get("year") or year_of(metadata["date"])
    return IndexEntry(record.doc_cid, document, record.event_id, year, metadata, path)


def _described(read: Document, record: Record) -> Document:
    said = record.language or read.language
    if said is None and (detected := detect_language(read.body)) is not None:
        said = detected.language
    return dataclasses.replace(read, title=record.title or read.title, language=said)


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
