"""The rag service: search in corpora, add, replace and remove, list.

See: docs/rag.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar, Final

import msgspec

from hearthnet import Call, HearthNetError, NodeContext, Offer, Reply, Service, Stream, capability
from hearthnet.core import TaskSet
from hearthnet_rag.index.journal import Key, Record
from hearthnet_rag.ingest.document_import import CORPUS as SYSTEM
from hearthnet_rag.ingest.document_import import LARGEST_BYTES, check_size
from hearthnet_rag.ingest.progress import Ingestions
from hearthnet_rag.library import Library
from hearthnet_rag.mirror.contents import MAX_DOCUMENTS
from hearthnet_rag.mirror.copy_files import KeptCopy
from hearthnet_rag.mirror.mirror import Mirror
from hearthnet_rag.ownership import OWNER, PERSONAL, Corpora, is_copy, name_of, person_of
from hearthnet_rag.person_corpora import PersonCorpora
from hearthnet_rag.replies import (
    copy_offer,
    how_answered,
    ingest_meta,
    outcome,
    passage,
    query_offer,
    rebuilt_note,
    record_of_input,
    undecided_note,
    version_of_copy,
)
from hearthnet_rag.schemas import (
    CorpusParams,
    DocumentRange,
    DocumentsInput,
    IngestInput,
    ManifestInput,
    MirrorInput,
    OneDocument,
    PersonInput,
    QueryInput,
    RemovePersonInput,
    SearchedParams,
    ShareInput,
)
from hearthnet_rag.search.embedding import Embedding
from hearthnet_rag.search.search import no_such_corpus, search

_log = logging.getLogger(__name__)
AT_ONCE: Final = 8
"""Documents added concurrently: while one waits for the disk, another can use the processor."""
REBUILDING: Final = "rebuilding the search index"
TIDY_SECONDS: Final = 600.0
PATIENCE_SECONDS: Final = 2.0
"""Time that `rag.progress` waits for an ingestion to begin."""
_ALL_OF_A_COPY: Final = 2 * MAX_DOCUMENTS
"""Documents in the index of a copy, with those of a version on its way."""
_ABSENT: Final = {"state": "absent", "stage": "", "current": 0, "total": 0}
_NEVER_SHARED: Final = "corpus personal is never shared; ingest what is for others into one of another name"


class RagService(Service):
    """Search in the documents of the household."""

    name: ClassVar[str] = "rag"

    def __init__(self) -> None:
        super().__init__()
        self._keys: list[str] = []
        self._looking = asyncio.Lock()
        self._damage_note: str | None = None
        self._ingestions = Ingestions()
        self._gone_persons: set[str] = set()
        self._tasks = TaskSet()
        self._removed = asyncio.Event()
        self._adding = ThreadPoolExecutor(AT_ONCE, "ingest")

    async def start(self, node: NodeContext) -> None:
        """Open the index, update the starter corpus, and restore documents lost by damage."""
        self._node = node
        self._library = await asyncio.to_thread(Library, node.data)
        self._corpora = Corpora(node.identity.node_id, self._keys, self._is_shared)
        await asyncio.to_thread(self._library.read_starter, node.progress)
        await self._restore()
        self._embedding = Embedding(self._library.index, node.bus, self._ingestions.idle)
        self._mirror = Mirror(node, self._library, self._corpora, self._show, self._embedding.wake)
        await self._look()
        await self._mirror.start()
        self._tasks.start(self._embedding.run(), "vectors of passages")
        self._tasks.start(self._tidy(), "give back disk space")

    def offers(self) -> list[Offer]:
        """Offer a query for each corpus, and the other capabilities.

        A corpus that is not shared is offered to this home only, or to the person of it whose it is, and
        named in no other offer.
        """
        shared = [key for key in self._keys if key != SYSTEM and self._is_shared(key)]
        writable = [key for key in shared if person_of(key) == OWNER]
        params = {"corpora_available": writable, "max_document_bytes": LARGEST_BYTES}
        corpora = ("remove", "progress", "share", "list_corpora", "list_documents")
        others = (*corpora, "list_person", "remove_person")
        return [
            *(query_offer(key, shared=self._is_shared(key)) for key in self._keys),
            *(copy_offer(copy) for copy in self._mirror.copies.standing_in()),
            *self._mirror.offers(),
            Offer(capability="rag.ingest@1.0", params=params, max_concurrent=AT_ONCE),
            *(Offer(capability=f"rag.{verb}@1.0") for verb in others),
        ]

    async def stop(self) -> None:
        """Close the index; a running ingestion is undone."""
        await self._tasks.close()
        if hasattr(self, "_mirror"):
            await self._mirror.close()
        if hasattr(self, "_library"):
            await asyncio.to_thread(self._library.close)
        self._adding.shutdown(wait=False, cancel_futures=True)

    @capability("rag.query@1.0")
    async def query(self, call: Call[SearchedParams, QueryInput]) -> Reply:
        """Return the passages of one corpus that fit the query best."""
        corpus, wanted = call.params.corpus, call.input
        key, copy = self._searched(call)
        fitting = wanted.filter if copy is None else self._mirror.copies.filter_of(copy, wanted.filter)
        outlook = await self._embedding.outlook(key, wanted.query)
        hits = await asyncio.to_thread(
            search, self._library.index, key, wanted.query, wanted.k, fitting, outlook.asked
        )
        chunks = [passage(rank, hit, wanted.include_text) for rank, hit in enumerate(hits, start=1)]
        version = await self._mirror.version(key) if copy is None else version_of_copy(copy)
        return Reply(output={"chunks": chunks}, meta={"corpus": corpus, **how_answered(outlook), **version})

    @capability("rag.ingest@1.0")
    async def ingest(self, call: Call[CorpusParams, IngestInput]) -> Reply:
        """Add a stored document to a corpus; a repeated call returns the first result."""
        corpus, wanted = call.params.corpus, call.input
        key = self._corpora.changed(call, corpus)
        record = record_of_input(key, wanted)
        made = await asyncio.to_thread(self._library.find_same, record, update=wanted.update)
        if made is not None:
            return Reply(output=outcome(made), meta=ingest_meta(corpus, made))
        # Otherwise a small document fits into the spare room by which the node reports the full disk.
        await self._node.check_room()
        with self._ingestions.begin(record.key) as on_progress:
            data = await self._read(record, call)
            # A separate pool keeps the loop's default threads free for searches.
            added = await asyncio.get_running_loop().run_in_executor(
                self._adding,
                partial(
                    self._library.ingest,
                    record,
                    data,
                    on_progress,
                    update=wanted.update,
                    check=partial(self._check_still, call, key),
                ),
            )
        await self._look()
        self._embedding.wake()
        if added.replaced:
            self._removed.set()
        detected = msgspec.structs.asdict(added)
        del detected["made"]
        return Reply(output=outcome(added.made) | detected, meta=ingest_meta(corpus, added.made))

    @capability("rag.progress@1.0")
    async def progress(self, call: Call[CorpusParams, OneDocument], stream: Stream) -> Reply:
        """Return the progress of an ingestion, or stream it until the ingestion has ended."""
        corpus = call.params.corpus
        found = self._corpora.find(call, corpus)
        if found is None and (found := self._corpora.begun(call, corpus)) is None:
            # The answer for a corpus that does not exist, without a wait that an ingestion would end.
            return Reply(output=_ABSENT, meta={"corpus": corpus})
        key = found, call.input.doc_cid
        if not stream.unary:
            async for one in self._ingestions.follow(key, PATIENCE_SECONDS):
                await stream.progress(one.stage, one.current, one.total)
        return Reply(output=await self._how_far(key), meta={"corpus": corpus})

    @capability("rag.remove@1.0")
    async def remove(self, call: Call[CorpusParams, OneDocument]) -> Reply:
        """Remove a document from a corpus."""
        corpus, doc_cid = call.params.corpus, call.input.doc_cid
        key = self._corpora.changed(call, corpus)
        check = partial(self._check_still, call, key)
        chunks = await asyncio.to_thread(self._library.remove, key, doc_cid, check)
        self._removed.set()
        await self._look()
        return Reply({"doc_cid": doc_cid, "chunks_removed": chunks}, {"corpus": corpus})

    @capability("rag.share@1.0")
    async def share(self, call: Call[CorpusParams, ShareInput]) -> Reply:
        """Share a corpus with the community, or keep it to its person; only that one decides."""
        corpus, shared, copies = call.params.corpus, call.input.shared, call.input.copies
        key, path = self._corpora.mine(call, corpus), {"path": "/params/corpus"}
        if corpus == PERSONAL and shared:
            raise HearthNetError("unauthorized", _NEVER_SHARED, details=path)
        if shared and self._corpora.is_name_shared(key):
            taken = f"another shared corpus of this home is called {corpus}; choose another name for yours"
            raise HearthNetError("unauthorized", taken, details=path)
        sharing = self._library.sharing
        await asyncio.to_thread(sharing.decide, key, shared=shared, copies=copies)
        self._mirror.changed()
        self._show()
        output = {"corpus": corpus, "shared": shared, "copies": sharing.may_copy(key)}
        return Reply(output, {"corpus": corpus})

    @capability("rag.manifest@1.0")
    async def manifest(self, call: Call[CorpusParams, ManifestInput]) -> Reply:
        """Return the signed contents of a corpus that other homes may copy."""
        return await self._mirror.manifest(call)

    @capability("rag.read_document@1.0")
    async def read_document(self, call: Call[CorpusParams, DocumentRange]) -> Reply:
        """Return a part of the file of a document that other homes may copy."""
        return await self._mirror.read_document(call)

    @capability("rag.mirror@1.0")
    async def mirror(self, call: Call[CorpusParams, MirrorInput]) -> Reply:
        """Begin or end a copy of another home's corpus."""
        return await self._mirror.mirror(call)

    @capability("rag.list_mirrors@1.0")
    async def list_mirrors(self, call: Call[Any, Any]) -> Reply:
        """Return the copies that this home keeps."""
        return Reply({"copies": self._mirror.copies.rows()})

    @capability("rag.list_corpora@1.0")
    async def list_corpora(self, call: Call[Any, Any]) -> Reply:
        """Return the corpora of this node that the caller may search, each as a query of its name does."""
        corpora = {one.name: one for one in await asyncio.to_thread(self._library.index.corpora)}
        named = ((name, self._corpora.find(call, name)) for name in self._corpora.names(call))
        listed = [msgspec.structs.replace(corpora[key], name=name) for name, key in named if key in corpora]
        rows = {one.name: msgspec.structs.asdict(one) for one in listed}
        for copy in self._mirror.copies.standing_in():
            if copy.corpus not in rows and copy.key in corpora:
                figures = msgspec.structs.asdict(corpora[copy.key])
                rows[copy.corpus] = {**figures, "name": copy.corpus, **version_of_copy(copy)}
        return Reply(output={"corpora": [*rows.values()]})

    @capability("rag.list_documents@1.0")
    async def list_documents(self, call: Call[SearchedParams, DocumentsInput]) -> Reply:
        """Return the documents of a corpus."""
        corpus, limit = call.params.corpus, call.input.limit
        key, copy = self._searched(call)
        most = limit + 1 if copy is None else _ALL_OF_A_COPY
        found = await asyncio.to_thread(self._library.index.listed, key, most)
        if copy is not None:
            present = frozenset(copy.cids())
            found = [one for one in found if one.doc_cid in present]
        version = await self._mirror.version(key) if copy is None else version_of_copy(copy)
        output = {"documents": found[:limit], "truncated": len(found) > limit}
        return Reply(output, {"corpus": corpus, **version})

    @capability("rag.list_person@1.0")
    async def list_person(self, call: Call[Any, PersonInput]) -> Reply:
        """Return how much another person of the home has; of private corpora their number alone."""
        return Reply(await asyncio.to_thread(PersonCorpora(self._library, call.input.person).summary))

    @capability("rag.remove_person@1.0")
    async def remove_person(self, call: Call[Any, RemovePersonInput]) -> Reply:
        """Remove the private corpora of a removed person, and make the owner's what the person shared."""
        wanted = call.input
        corpora = PersonCorpora(self._library, wanted.person)
        # A document that is being read now must not come after the others have gone.
        self._gone_persons.add(wanted.person)
        for doc_cid in await asyncio.to_thread(corpora.shared_documents):
            # Before the person's files go: the index is rebuilt from them after damage.
            await self._node.keep_blob(doc_cid)
        removed = 0 if wanted.keep_private else await asyncio.to_thread(corpora.remove_private)
        names = await asyncio.to_thread(corpora.hand_over, shared=wanted.keep_shared)
        self._removed.set()
        await self._look()
        return Reply({"documents_removed": removed, "corpora": names})

    def _searched(self, call: Call[SearchedParams, Any]) -> tuple[str, KeptCopy | None]:
        """Return the key of the corpus that the caller means, with the copy if it is one.

        A corpus of this home comes first, unless the caller names the home whose copy is meant.

        Raises:
            HearthNetError: `not_found` if there is none that the caller may search.
        """
        corpus, home = call.params.corpus, call.params.copy_of
        own = None if home else self._corpora.find(call, corpus)
        if own is not None:
            return own, None
        copy = self._mirror.copies.find(corpus, home)
        if copy is None:
            raise no_such_corpus(corpus, self._corpora.names(call))
        return copy.key, copy

    async def _how_far(self, key: Key) -> dict[str, Any]:
        """Return the state of an ingestion, with its stage while it is running."""
        stage = self._ingestions.stage(key)
        if stage is not None:
            return {"state": "running", "stage": stage.stage, "current": stage.current, "total": stage.total}
        found = await asyncio.to_thread(self._library.index.find, *key)
        return {**_ABSENT, "state": "there"} if found else _ABSENT

    async def _read(self, record: Record, call: Call[Any, Any] | None) -> bytes:
        """Return a document that the caller may read, or one of the journal; checked against its hash."""
        blob = await self._node.open_blob(record.doc_cid, call)
        check_size(record, blob.size)  # before it is in memory
        return await blob.read(0, blob.size)

    async def _look(self) -> None:
        """Read the list of corpora, and renew the offers if it has changed."""
        async with self._looking:
            listed = await asyncio.to_thread(self._library.index.corpora)
            keys = [corpus.name for corpus in listed if not is_copy(corpus.name)]
            if keys != self._keys:
                self._keys[:] = keys
                await asyncio.to_thread(self._library.keep_answers, keys)
                self._show()
        self._mirror.changed()

    def _show(self) -> None:
        """Renew the offers and the note, which is the owner's."""
        owners = {key for key in self._keys if person_of(key) == OWNER}
        undecided = self._library.sharing.unanswered(owners - {SYSTEM, PERSONAL})
        notes = (self._damage_note, undecided_note(undecided) if undecided else None)
        self.note = "; ".join(filter(None, notes)) or None
        self.offers_changed()

    async def _tidy(self) -> None:
        """Release the disk space of removed documents while no ingestion is running."""
        while True:
            try:
                await self._ingestions.idle()
                more = await asyncio.to_thread(self._library.index.reclaim)
            except HearthNetError as error:
                _log.info("disk space is given back later: %s", error)
                more = False
            if not more:
                self._removed.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._removed.wait(), TIDY_SECONDS)

    async def _restore(self) -> None:
        """Add the documents that the journal has and the index lacks, and set the note."""
        lost = await asyncio.to_thread(self._library.lost)
        missing = 0
        for number, record in enumerate(lost):
            self._node.progress(REBUILDING, number, len(lost))
            try:
                data = await self._read(record, None)
                await asyncio.to_thread(self._library.restore, record, data)
            except HearthNetError as error:
                missing += 1
                _log.warning("%s in corpus %s is lost: %s", record.doc_cid, record.corpus, error)
        await asyncio.to_thread(self._library.clear)
        if (aside := self._library.index.moved_aside) is not None:
            self._damage_note = rebuilt_note(aside.name, len(lost) - missing, missing)

    def _check_still(self, call: Call[Any, Any], key: str) -> None:
        """Check that the caller means the same corpus as when the call began, and may change it.

        Raises:
            HearthNetError: As `Corpora.changed`; `not_found` if the name means another corpus now;
                `unauthorized` if its person was removed.
        """
        if person_of(key) in self._gone_persons:
            raise HearthNetError("unauthorized", f"{person_of(key)} is no person of this home any more")
        if self._corpora.changed(call, call.params.corpus) != key:
            raise no_such_corpus(call.params.corpus, ())

    def _is_shared(self, key: str) -> bool:
        name = name_of(key)
        return key == SYSTEM or (name != PERSONAL and self._library.sharing.is_shared(key))
