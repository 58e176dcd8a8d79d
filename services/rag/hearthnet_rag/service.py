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
from hearthnet.core import TaskSet, new_ulid
from hearthnet_rag.index.index import Ingested
from hearthnet_rag.index.journal import Key, Record
from hearthnet_rag.ingest.document_import import CORPUS as SYSTEM
from hearthnet_rag.ingest.document_import import LARGEST_BYTES, check_size
from hearthnet_rag.ingest.progress import Ingestions
from hearthnet_rag.library import Library
from hearthnet_rag.schemas import (
    CorpusParams,
    DocumentsInput,
    IngestInput,
    OneDocument,
    QueryInput,
    ShareInput,
)
from hearthnet_rag.search.embedding import Embedding, QueryVector
from hearthnet_rag.search.search import Hit, no_such_corpus, search

_log = logging.getLogger(__name__)
K_MAX: Final = 20
AT_ONCE: Final = 8
"""Documents added concurrently: while one waits for the disk, another can use the processor."""
REBUILDING: Final = "rebuilding the search index"
TIDY_SECONDS: Final = 600.0
PATIENCE_SECONDS: Final = 2.0
"""Time that `rag.progress` waits for an ingestion to begin."""
PERSONAL: Final = "personal"
_MOST_NAMED: Final = 3
_ABSENT: Final = {"state": "absent", "stage": "", "current": 0, "total": 0}
_FIXED: Final = {
    SYSTEM: "corpus system comes with HearthNet and is read-only; choose another name for your documents",
    PERSONAL: "corpus personal is never shared; ingest what is for others into one of another name",
}


class RagService(Service):
    """Search in the documents of the household."""

    name: ClassVar[str] = "rag"

    def __init__(self) -> None:
        super().__init__()
        self._corpora: list[str] = []
        self._looking = asyncio.Lock()
        self._damage_note: str | None = None
        self._ingestions = Ingestions()
        self._tasks = TaskSet()
        self._removed = asyncio.Event()
        self._adding = ThreadPoolExecutor(AT_ONCE, "ingest")

    async def start(self, node: NodeContext) -> None:
        """Open the index, update the starter corpus, and restore documents lost by damage."""
        self._node = node
        self._library = await asyncio.to_thread(Library, node.data)
        await asyncio.to_thread(self._library.read_starter, node.progress)
        await self._restore()
        await self._look()
        self._embedding = Embedding(self._library.index, node.bus, self._ingestions.idle)
        self._tasks.start(self._embedding.run(), "vectors of passages")
        self._tasks.start(self._tidy(), "give back disk space")

    def offers(self) -> list[Offer]:
        """Offer a query for each corpus, and the other capabilities.

        A corpus that is not shared is offered to this home only, and named in no other offer.
        """
        writable = [corpus for corpus in self._corpora if corpus != SYSTEM and self._is_shared(corpus)]
        params = {"corpora_available": writable, "max_document_bytes": LARGEST_BYTES}
        others = ("remove", "progress", "share", "list_corpora", "list_documents")
        return [
            *(_query_offer(corpus, shared=self._is_shared(corpus)) for corpus in self._corpora),
            Offer(capability="rag.ingest@1.0", params=params, max_concurrent=AT_ONCE),
            *(Offer(capability=f"rag.{verb}@1.0") for verb in others),
        ]

    async def stop(self) -> None:
        """Close the index; a running ingestion is undone."""
        await self._tasks.close()
        if hasattr(self, "_library"):
            await asyncio.to_thread(self._library.close)
        self._adding.shutdown(wait=False, cancel_futures=True)

    @capability("rag.query@1.0")
    async def query(self, call: Call[CorpusParams, QueryInput]) -> Reply:
        """Return the passages of one corpus that fit the query best."""
        corpus, wanted = call.params.corpus, call.input
        self._check_visible(call, corpus)
        outlook = await self._embedding.outlook(corpus, wanted.query)
        hits = await asyncio.to_thread(
            search, self._library.index, corpus, wanted.query, wanted.k, wanted.filter, outlook.asked
        )
        chunks = [_chunk(rank, hit, wanted.include_text) for rank, hit in enumerate(hits, start=1)]
        return Reply(output={"chunks": chunks}, meta={"corpus": corpus, **_how(outlook)})

    @capability("rag.ingest@1.0")
    async def ingest(self, call: Call[CorpusParams, IngestInput]) -> Reply:
        """Add a stored document to a corpus; a repeated call returns the first result."""
        corpus, wanted = call.params.corpus, call.input
        self._check_writable(call, corpus)
        record = _record(corpus, wanted)
        made = await asyncio.to_thread(self._library.find_same, record, update=wanted.update)
        if made is not None:
            return Reply(output=_outcome(made), meta=_ingest_meta(corpus, made))
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
                    check=partial(self._check_writable, call, corpus),
                ),
            )
        await self._look()
        self._embedding.wake()
        if added.replaced:
            self._removed.set()
        detected = msgspec.structs.asdict(added)
        del detected["made"]
        return Reply(output=_outcome(added.made) | detected, meta=_ingest_meta(corpus, added.made))

    @capability("rag.progress@1.0")
    async def progress(self, call: Call[CorpusParams, OneDocument], stream: Stream) -> Reply:
        """Return the progress of an ingestion, or stream it until the ingestion has ended."""
        key = call.params.corpus, call.input.doc_cid
        if not self._may_read(call, key[0]):
            # The answer for a corpus that does not exist, without a wait that an ingestion would end.
            return Reply(output=_ABSENT, meta={"corpus": key[0]})
        if not stream.unary:
            async for one in self._ingestions.follow(key, PATIENCE_SECONDS):
                await stream.progress(one.stage, one.current, one.total)
        return Reply(output=await self._how_far(key), meta={"corpus": key[0]})

    @capability("rag.remove@1.0")
    async def remove(self, call: Call[CorpusParams, OneDocument]) -> Reply:
        """Remove a document from a corpus."""
        corpus, doc_cid = call.params.corpus, call.input.doc_cid
        self._check_writable(call, corpus)
        check = partial(self._check_writable, call, corpus)
        chunks = await asyncio.to_thread(self._library.remove, corpus, doc_cid, check)
        self._removed.set()
        await self._look()
        return Reply({"doc_cid": doc_cid, "chunks_removed": chunks}, {"corpus": corpus})

    @capability("rag.share@1.0")
    async def share(self, call: Call[CorpusParams, ShareInput]) -> Reply:
        """Share a corpus with the community, or keep it to this home."""
        corpus, shared = call.params.corpus, call.input.shared
        if corpus not in self._corpora:
            raise no_such_corpus(corpus, self._corpora)
        if corpus == SYSTEM or (corpus == PERSONAL and shared):
            raise HearthNetError("unauthorized", _FIXED[corpus], details={"path": "/params/corpus"})
        await asyncio.to_thread(self._library.sharing.decide, corpus, shared=shared)
        self._show()
        return Reply({"corpus": corpus, "shared": shared}, {"corpus": corpus})

    @capability("rag.list_corpora@1.0")
    async def list_corpora(self, call: Call[Any, Any]) -> Reply:
        """Return the corpora of this node that the caller may search."""
        corpora = await asyncio.to_thread(self._library.index.corpora)
        return Reply(output={"corpora": [one for one in corpora if self._may_read(call, one.name)]})

    @capability("rag.list_documents@1.0")
    async def list_documents(self, call: Call[CorpusParams, DocumentsInput]) -> Reply:
        """Return the documents of a corpus."""
        corpus, limit = call.params.corpus, call.input.limit
        self._check_visible(call, corpus)
        found = await asyncio.to_thread(self._library.index.listed, corpus, limit + 1)
        return Reply({"documents": found[:limit], "truncated": len(found) > limit}, {"corpus": corpus})

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
            corpora = [corpus.name for corpus in await asyncio.to_thread(self._library.index.corpora)]
            if corpora != self._corpora:
                self._corpora = corpora
                await asyncio.to_thread(self._library.sharing.keep, corpora)
                self._show()

    def _show(self) -> None:
        """Renew the offers and the note."""
        undecided = self._library.sharing.unanswered(set(self._corpora) - {SYSTEM, PERSONAL})
        notes = (self._damage_note, _undecided(undecided) if undecided else None)
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
            self._damage_note = _rebuilt(aside.name, len(lost) - missing, missing)

    def _check_visible(self, call: Call[Any, Any], corpus: str) -> None:
        visible = [name for name in self._corpora if self._may_read(call, name)]
        if corpus not in visible:
            raise no_such_corpus(corpus, visible)

    def _check_writable(self, call: Call[Any, Any], corpus: str) -> None:
        if corpus == SYSTEM:
            raise HearthNetError("unauthorized", _FIXED[SYSTEM], details={"path": "/params/corpus"})
        if not self._may_read(call, corpus):  # this home alone begins a corpus
            self._check_visible(call, corpus)

    def _is_shared(self, corpus: str) -> bool:
        return corpus == SYSTEM or (corpus != PERSONAL and self._library.sharing.is_shared(corpus))

    def _may_read(self, call: Call[Any, Any], corpus: str) -> bool:
        """Return whether the caller may know of `corpus`: all of a shared one, else this home alone.

        Of this home are the node itself, its owner's clients, and those whose scope names the corpus.
        """
        own = self._node.identity.node_id
        if self._is_shared(corpus):
            return True
        return call.caller == own and (call.claims is None or call.claims.is_of_home(own, {"corpus": corpus}))


def _how(outlook: QueryVector) -> dict[str, Any]:
    """Return the metadata that tells how a query was answered."""
    model = outlook.asked.model if outlook.asked is not None else None
    degraded = {"degraded": True, "notice": outlook.notice} if outlook.notice is not None else {}
    return {"embedding_model": model, **degraded}


def _query_offer(corpus: str, *, shared: bool) -> Offer:
    params = {"corpus": corpus, "embedding_model": None, "k_max": K_MAX}
    return Offer(capability="rag.query@1.0", params=params, trust="" if shared else "home")


def _record(corpus: str, wanted: IngestInput) -> Record:
    return Record(
        corpus=corpus,
        doc_cid=wanted.doc_cid,
        event_id=new_ulid(),
        media_type=wanted.media_type,
        title=wanted.title,
        language=wanted.language,
        metadata=wanted.metadata,
    )


def _chunk(rank: int, hit: Hit, with_text: bool) -> dict[str, Any]:
    chunk = {"rank": rank, "score": hit.score, "text": hit.text, "metadata": hit.metadata}
    if not with_text:
        del chunk["text"]
    return chunk


def _outcome(made: Ingested) -> dict[str, Any]:
    return {"doc_cid": made.doc_cid, "chunks_indexed": made.chunks, "tokens_indexed": made.tokens}


def _ingest_meta(corpus: str, made: Ingested) -> dict[str, Any]:
    return {"corpus": corpus, "ingest_event_id": made.event_id, "embedding_model": None}


def _undecided(corpora: list[str]) -> str:
    names = ", ".join(corpora[:_MOST_NAMED]) + (", ..." if len(corpora) > _MOST_NAMED else "")
    return (
        f"private until you decide: {names}; hearthnet corpus share {corpora[0]}, "
        f"or: hearthnet corpus unshare {corpora[0]}"
    )


def _rebuilt(moved_to: str, restored: int, missing: int) -> str:
    lost = f"; {missing} could not be read any more" if missing else ""
    return (
        f"the search index was damaged: kept as {moved_to}, rebuilt with {restored} of your documents{lost}"
    )
