"""The documents of one node: index, journal and starter corpus as one. Calls block, from any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from hearthnet.errors import HearthNetError
from hearthnet_rag.documents import Pages
from hearthnet_rag.entries import entry_of
from hearthnet_rag.index import CorpusInfo, DocumentInfo, Index, Ingested
from hearthnet_rag.journal import Journal, Record
from hearthnet_rag.readers import Told
from hearthnet_rag.readers.pool import Readers
from hearthnet_rag.search import Filter, Hit, search
from hearthnet_rag.starter import bring_up_to_date, starter_files
from hearthnet_rag.vectors import Asked

INDEXING = "indexing"


class Added(msgspec.Struct, frozen=True):
    """What came of an ingestion: the outcome, what the document turned out to be, and whose place it took.

    `pages` is None where it has none.
    """

    made: Ingested
    title: str
    language: str | None
    media_type: str
    pages: int | None
    replaced: list[str]
    pages_without_text: tuple[Pages, ...]


class Library:
    """What is found in `folder`, opened. `moved_aside` names a damaged index that lay there."""

    def __init__(self, folder: Path) -> None:
        self._index = Index(folder)
        self._journal = Journal(folder)
        self._readers = Readers()
        self._changing = threading.Lock()  # journal and index change in the same order
        self.moved_aside = self._index.moved_aside

    @property
    def index(self) -> Index:
        """What it searches in, for those who make its vectors."""
        return self._index

    def close(self) -> None:
        """Closes the index; an ingestion under way is undone."""
        self._readers.close()
        self._index.close()

    def read_starter(self, progress: Callable[[str, int, int], None]) -> None:
        """Brings corpus `system` to what this program ships."""
        bring_up_to_date(self._index, starter_files(), progress)

    def find(self, corpus: str, doc_cid: str) -> Ingested | None:
        """What an earlier ingestion made."""
        return self._index.find(corpus, doc_cid)

    def find_same(self, record: Record, *, update: bool) -> Ingested | None:
        """What an earlier ingestion of the same document made; with `update`, None where there are others
        whose place it is to take.
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
        told: Told = lambda stage, current, total: None,
        *,
        update: bool = False,
    ) -> Added:
        """Adds the document in `data` as `record` says, and notes it in the journal first.

        With `update` it takes the place of what came under the same name, or has the same title where it came
        under none. `bad_request` where it cannot be read or is too large.
        """
        entry = entry_of(self._readers, record, data, told)
        told(INDEXING, 0, 1)
        with self._changing:
            replaces = self._index.older(record.corpus, entry) if update else []
            self._journal.append(msgspec.structs.replace(record, replaces=replaces))
            made = self._index.add(record.corpus, entry, replaces)
        told(INDEXING, 1, 1)
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
        """Forgets a document, notes that in the journal first, and returns how many passages it had.

        `not_found` where it is not there.
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
        """The journal's documents that the index does not hold: all of them after the index was damaged."""
        return [record for key, record in self._journal.state().present.items() if not self.find(*key)]

    def restore(self, record: Record, data: bytes) -> Ingested:
        """Adds a document that the journal names already."""
        return self._index.add(
            record.corpus, entry_of(self._readers, record, data, lambda stage, current, total: None)
        )

    def clear(self) -> int:
        """Forgets what the journal says is gone, and the index still holds; returns how many documents.

        What is to be replaced stays for as long as its newer version is not there.
        """
        state, cleared = self._journal.state(), 0
        for (corpus, doc_cid), successor in state.gone.items():
            if (successor is None or self.find(*successor)) and self.find(corpus, doc_cid):
                self._index.remove(corpus, [doc_cid])
                cleared += 1
        return cleared

    def reclaim(self) -> bool:
        """Gives back some of the disk space of what was removed; whether there may be more to give."""
        return self._index.reclaim()

    def search(self, corpus: str, query: str, k: int, wanted: Filter, near: Asked | None = None) -> list[Hit]:
        """As `hearthnet_rag.search.search`."""
        return search(self._index, corpus, query, k, wanted, near)

    def corpora(self) -> list[CorpusInfo]:
        """What corpora there are, by name."""
        return self._index.corpora()

    def documents(self, corpus: str, limit: int) -> list[DocumentInfo]:
        """Up to `limit` documents of `corpus`, by title."""
        return self._index.listed(corpus, limit)
