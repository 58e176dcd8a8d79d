"""The documents of one node: index, journal and starter corpus. Blocks; thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec

from hearthnet import HearthNetError
from hearthnet.core import new_ulid
from hearthnet_rag.index.index import Index, Ingested
from hearthnet_rag.index.journal import Journal, Record
from hearthnet_rag.index.sharing import Sharing
from hearthnet_rag.ingest.document_import import bring_up_to_date, entry_of, starter_files
from hearthnet_rag.ownership import OWNER, free_name, name_of, person_of
from hearthnet_rag.readers import OnProgress, no_progress
from hearthnet_rag.readers.documents import PLAIN, Pages
from hearthnet_rag.readers.markdown import MAX_FRONT_MATTER_CHARS
from hearthnet_rag.readers.pool import ReaderPool

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
    """The documents in `folder`. What only reads the index uses `index` directly."""

    def __init__(self, folder: Path) -> None:
        self.index = Index(folder)
        self._journal = Journal(folder)
        self.sharing = Sharing(folder)
        self._readers = ReaderPool()
        self._changing = threading.Lock()  # journal and index change in the same order

    def close(self) -> None:
        """Close the index; a running ingestion is undone."""
        self._readers.close()
        self.index.close()

    def read_starter(self, progress: Callable[[str, int, int], None]) -> None:
        """Update corpus `system` to the version shipped with this program."""
        bring_up_to_date(self.index, starter_files(), progress)

    def find_same(self, record: Record, *, update: bool) -> Ingested | None:
        """Return the result of an earlier ingestion of the same document, or None.

        With `update`, return None also if the document is to replace others.
        """
        made = self.index.find(*record.key)
        if made is None or not update:
            return made
        named = record.metadata.get("path")
        return None if self.index.others(record.corpus, record.doc_cid, named, record.title) else made

    def ingest(
        self,
        record: Record,
        data: bytes,
        on_progress: OnProgress = no_progress,
        *,
        update: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> Added:
        """Record the ingestion in the journal, then add the document in `data`.

        With `update` it replaces documents of the same name, or of the same title if it has no name. `check`
        may refuse what is no longer allowed once the document was read.

        Raises:
            HearthNetError: `bad_request` if it cannot be read or is too large; and as `check`.
        """
        entry = entry_of(self._readers, record, data, on_progress)
        on_progress(INDEXING, 0, 1)
        # Before the journal has its line: a document that ends the service here must not be restored.
        rows = self.index.rows(record.corpus, entry.document)
        with self._changing:
            check()
            replaces: list[str] = []
            if update:
                title = entry.document.title
                replaces = self.index.others(record.corpus, record.doc_cid, entry.name, title)
            self._journal.append(msgspec.structs.replace(record, replaces=replaces))
            made = self.index.add(record.corpus, entry, replaces, rows)
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

    def remove(self, corpus: str, doc_cid: str, check: Callable[[], None] = lambda: None) -> int:
        """Record the removal in the journal, then remove the document; `check` as of `ingest`.

        Returns the number of its passages.

        Raises:
            HearthNetError: `not_found` if there is no such document; and as `check`.
        """
        with self._changing:
            check()
            found = self.index.find(corpus, doc_cid)
            if found is None:
                raise HearthNetError(
                    "not_found",
                    f"corpus {name_of(corpus)} has no document {doc_cid[:23]}; "
                    "rag.list_documents says what it has",
                    details={"path": "/input/doc_cid"},
                )
            self._journal.append(Record(corpus, doc_cid, found.event_id, "", removed=True))
            return self.index.remove(corpus, [doc_cid])

    def drop(self, corpus: str, doc_cids: Collection[str]) -> None:
        """Remove documents of a copy without a trace: from the journal first, then from the index.

        In this order no start in between adds them again.
        """
        with self._changing:
            self._journal.forget(corpus, doc_cids)
            self.index.remove(corpus, list(doc_cids))

    def records(self, corpus: str) -> list[Record]:
        """Return the documents that `corpus` should have, by their CIDs."""
        present = self._journal.state().present
        return sorted((one for one in present.values() if one.corpus == corpus), key=lambda one: one.doc_cid)

    def keep_answers(self, corpora: Collection[str]) -> None:
        """Forget the answers about all but `corpora`; copies of one whose last document was removed end.

        Read from the journal, so that a crash after the removal changes nothing.
        """
        state = self._journal.state()
        emptied = {corpus for (corpus, _), successor in state.gone.items() if successor is None}
        self.sharing.keep(corpora, emptied - {corpus for corpus, _ in state.present})

    def changes(self) -> int:
        """Return a number that grows with each change of a corpus."""
        return self._journal.changes

    def hand_over(self, key: str, *, shared: bool) -> str:
        """Make the corpus of another person the owner's, and return its name: its own where that is free.

        `shared` is whether members may search it from there on; else the owner has yet to decide.
        """
        with self._changing:
            others = [one.name for one in self.index.corpora() if one.name != key]
            name = free_name(key, [one for one in others if person_of(one) == OWNER])
            self.sharing.end_copies(key)
            if shared:
                self.sharing.decide(name, shared=True)
            self._journal.append(Record(name, "", new_ulid(), "", renames=key))
            self.index.rename(key, name)
            return name

    def lost(self) -> list[Record]:
        """Return the journal's documents that the index lacks, as after damage of the index."""
        return [record for key, record in self._journal.state().present.items() if not self.index.find(*key)]

    def restore(self, record: Record, data: bytes) -> Ingested:
        """Add a document that the journal has already.

        One with more TOML than is accepted now is added as plain text: it was accepted once.
        """
        try:
            entry = entry_of(self._readers, record, data, no_progress)
        except HearthNetError as error:
            if error.details.get("limit") != MAX_FRONT_MATTER_CHARS:
                raise
            as_text = msgspec.structs.replace(record, media_type=PLAIN)
            entry = entry_of(self._readers, as_text, data, no_progress)
        return self.index.add(record.corpus, entry)

    def clear(self) -> int:
        """Remove documents that the journal marks as gone; return their number.

        A document that is to be replaced stays until its newer version is present.
        """
        state, cleared = self._journal.state(), 0
        for (corpus, doc_cid), successor in state.gone.items():
            if (successor is None or self.index.find(*successor)) and self.index.find(corpus, doc_cid):
                self.index.remove(corpus, [doc_cid])
                cleared += 1
        return cleared
