"""The documents of one node: index, journal and starter corpus as one. Calls block, from any thread."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from hearthnet.errors import HearthNetError
from hearthnet_rag.documents import Document, file_name, read_document
from hearthnet_rag.index import CorpusInfo, DocumentInfo, Entry, Index, Ingested
from hearthnet_rag.journal import Journal, Record
from hearthnet_rag.search import Filter, Hit, search
from hearthnet_rag.starter import bring_up_to_date, starter_files, year_of

LARGEST_BYTES: Final = 32 * 1024 * 1024
METADATA_BYTES: Final = 16 * 1024


class Library:
    """What is found in `folder`, opened. `moved_aside` names a damaged index that lay there."""

    def __init__(self, folder: Path) -> None:
        self._index = Index(folder)
        self._journal = Journal(folder)
        self.moved_aside = self._index.moved_aside

    def close(self) -> None:
        """Closes the index; an ingestion under way is undone."""
        self._index.close()

    def read_starter(self, progress: Callable[[str, int, int], None]) -> None:
        """Brings corpus `system` to what this program ships."""
        bring_up_to_date(self._index, starter_files(), progress)

    def find(self, corpus: str, doc_cid: str) -> Ingested | None:
        """What an earlier ingestion made."""
        return self._index.find(corpus, doc_cid)

    def ingest(self, record: Record, data: bytes) -> Ingested:
        """Adds the document in `data` as `record` says, and notes it in the journal first.

        `bad_request` where it is no text or too large.
        """
        entry = entry_of(record, data)
        self._journal.append(record)
        return self._index.add(record.corpus, entry)

    def lost(self) -> Iterator[Record]:
        """The journal's documents that the index does not hold: all of them after the index was damaged."""
        return (record for record in self._journal.records() if not self.find(record.corpus, record.doc_cid))

    def restore(self, record: Record, data: bytes) -> Ingested:
        """Adds a document that the journal names already."""
        return self._index.add(record.corpus, entry_of(record, data))

    def search(self, corpus: str, query: str, k: int, wanted: Filter) -> list[Hit]:
        """As `hearthnet_rag.search.search`."""
        return search(self._index, corpus, query, k, wanted)

    def corpora(self) -> list[CorpusInfo]:
        """What corpora there are, by name."""
        return self._index.corpora()

    def documents(self, corpus: str, limit: int) -> list[DocumentInfo]:
        """Up to `limit` documents of `corpus`, by title."""
        return self._index.listed(corpus, limit)


def entry_of(record: Record, data: bytes) -> Entry:
    """The document in `data` as the index takes it: what the record says goes before what the text says."""
    given = record.metadata
    path = given.get("path")
    name = file_name(path) if path else None
    if len(data) > LARGEST_BYTES:
        raise HearthNetError(
            "bad_request",
            f"{name or 'the document'} has {len(data)} bytes, more than {LARGEST_BYTES}; split it",
            details={"path": "/input/doc_cid", "limit": LARGEST_BYTES},
        )
    read = read_document(data, record.media_type, name)
    document = dataclasses.replace(
        read, title=record.title or read.title, language=record.language or read.language
    )
    metadata = _metadata(document, given, name)
    year = given.get("year") or year_of(metadata["date"])
    return Entry(record.doc_cid, document, record.event_id, year, metadata)


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
