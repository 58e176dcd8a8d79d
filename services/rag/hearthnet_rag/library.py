"""The documents of one node: index, journal and starter corpus. Blocks; thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from hearthnet import HearthNetError
from hearthnet_rag.index.index import CorpusInfo, DocumentInfo, Index, Ingested
from hearthnet_rag.index.journal import Journal, Record
from hearthnet_rag.index.vectors import QueryEmbedding
from hearthnet_rag.ingest.document_import import bring_up_to_date, entry_of, starter_files
from hearthnet_rag.readers import OnProgress
from hearthnet_rag.readers.documents import Pages
from hearthnet_rag.readers.pool import Readers
from hearthnet_rag.search.search import Filter, Hit, search

INDEXING = "indexing"


class Added(msgspec.Struct, frozen=True):
    """Result of an ingestion with the detected properties of the document.

    `replaced` lists the CIDs of replaced documents; `pages` is None for a document without pages.
    """

    made: Ingested
    title: str
    language: str | None
    media_type: str
    pages: int | None
    replaced: list[str]
    pages_without_text: tuple[Pages, ...]


class Library:
    """The documents in `folder`; `moved_aside` is the new path of a damaged index, or None."""

    def __init__(self, folder: Path) -> None:
        self._index = Index(folder)
        self._journal = Journal(folder)
        self._readers = Readers()
        self._changing = threading.Lock()  # journal and index change in the same order
        self.moved_aside = self._index.moved_aside

    @property
    def index(self) -> Index:
        """The index, for the part that makes its vectors."""
        return self._index

    def close(self) -> None:
        """Close the index; a running ingestion is undone."""
        self._readers.close()
        self._index.close()

    def read_starter(self, progress: Callable[[str, int, int], None]) -> None:
        """Update corpus `system` to the version shipped with this program."""
        bring_up_to_date(self._index, starter_files(), progress)

    def find(self, corpus: str, doc_cid: str) -> Ingested | None:
        """Return the result of an earlier ingestion, or None."""
        return self._index.find(corpus, doc_cid)

    def find_same(self, record: Record, *, update: bool) -> Ingested | None:
        """Return the result of an earlier ingestion of the same document, or None.

        With `update`, return None also if the document is to replace others.
        """
        made = self.find(*record.key)
        if made is None or not update:
            return made
        named = record.metadata.get("path")
        return None if self._index.others(record.corpus, record.doc_cid, named, record.title) else made

    def ingest(
        self,
        record: Record,
        data: bytes,
        on_progress: OnProgress = lambda stage, current, total: None,
        *,
        update: bool = False,
    ) -> Added:
        """Record the ingestion in the journal, then add the document in `data`.

        With `update` it replaces documents of the same name, or of the same title if it has no name.

        Raises:
            HearthNetError: `bad_request` if it cannot be read or is too large.
        """
        entry = entry_of(self._readers, record, data, on_progress)
        on_progress(INDEXING, 0, 1)
        with self._changing:
            replaces = self._index.older(record.corpus, entry) if update else []
            self._journal.append(msgspec.structs.replace(record, replaces=replaces))
            made = self._index.add(record.corpus, entry, replaces)
        on_progress(INDEXING, 1, 1)
        document = entry.document
        pages = len(document.pages) or None
        return Added(
            made,
            document.title,
            document.language,
            document.media_type,
            pages,
            replaces,
            document.without_text,
        )

    def remove(self, corpus: str, doc_cid: str) -> int:
        """Record the removal in the journal, then remove the document.

        Returns the number of its passages.

        Raises:
            HearthNetError: `not_found` if there is no such document.
        """
        with self._changing:
            found = self._index.find(corpus, doc_cid)
            if found is None:
                raise HearthNetError(
                    "not_found",
                    f"corpus {corpus} has no document {doc_cid[:23]}; rag.list_documents says what it has",
                    details={"path": "/input/doc_cid"},
                )
            self._journal.append(Record(corpus, doc_cid, found.event_id, "", removed=True))
            return self._index.remove(corpus, [doc_cid])

    def lost(self) -> list[Record]:
        """Return the journal's documents that the index lacks, as after damage of the index."""
        return [record for key, record in self._journal.state().present.items() if not self.find(*key)]

    def restore(self, record: Record, data: bytes) -> Ingested:
        """Add a document that the journal has already."""
        return self._index.add(
            record.corpus, entry_of(self._readers, record, data, lambda stage, current, total: None)
        )

    def clear(self) -> int:
        """Remove documents that the journal marks as gone; return their number.

        A document that is to be replaced stays until its newer version is present.
        """
        state, cleared = self._journal.state(), 0
        for (corpus, doc_cid), successor in state.gone.items():
            if (successor is None or self.find(*successor)) and self.find(corpus, doc_cid):
                self._index.remove(corpus, [doc_cid])
                cleared += 1
        return cleared

    def reclaim(self) -> bool:
        """Release some disk space of removed documents; return whether more may be left."""
        return self._index.reclaim()

    def search(
        self, corpus: str, query: str, k: int, wanted: Filter, near: QueryEmbedding | None = None
    ) -> list[Hit]:
        """Search as `hearthnet_rag.search.search.search` does."""
        return search(self._index, corpus, query, k, wanted, near)

    def corpora(self) -> list[CorpusInfo]:
        """Return the corpora by name."""
        return self._index.corpora()

    def documents(self, corpus: str, limit: int) -> list[DocumentInfo]:
        """Return up to `limit` documents of `corpus`, by title."""
        return self._index.listed(corpus, limit)
