"""Copies of corpora, as the rag service answers calls about them: both sides of it.

See: docs/rag.md#copies-of-a-corpus.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from hearthnet import Call, HearthNetError, NodeContext, Offer, Reply
from hearthnet.core import TaskSet
from hearthnet_rag.ingest.document_import import CORPUS as SYSTEM
from hearthnet_rag.library import Library
from hearthnet_rag.mirror.copies import Copies
from hearthnet_rag.mirror.source import Source
from hearthnet_rag.mirror.transfer import MANIFEST, READ
from hearthnet_rag.ownership import PERSONAL, Corpora
from hearthnet_rag.schemas import CorpusParams, DocumentRange, ManifestInput, MirrorInput
from hearthnet_rag.search.search import no_such_corpus

_PAUSE_SECONDS: Final = 1.0
"""Pause between two announcements of what others may copy."""
_PATH: Final = {"path": "/params/corpus"}


class Mirror:
    """The corpora in `library` that may be copied, and the copies of those of other homes.

    `on_change` is called when the offers are to be renewed, `on_added` after documents came into a copy.
    """

    def __init__(
        self,
        node: NodeContext,
        library: Library,
        corpora: Corpora,
        on_change: Callable[[], None],
        on_added: Callable[[], None],
    ) -> None:
        self._membership = node.bus.peer.membership
        self._own = node.identity.node_id
        self._library = library
        self._corpora = corpora
        self._on_change = on_change
        self._source = Source(node, library)
        self.copies = Copies(node, library, on_change, on_added)
        self._tasks = TaskSet()
        self._changed = asyncio.Event()
        self._state = ""

    async def start(self) -> None:
        """Continue the copies of this home, and announce its corpora that may be copied."""
        self._state = await asyncio.to_thread(self._source.state)
        self._tasks.keep(self._announce, "what others may copy")
        await self.copies.start()

    async def close(self) -> None:
        """Stop both sides."""
        await self._tasks.close()
        await self.copies.close()

    def changed(self) -> None:
        """Report that a corpus of this home, or the right to copy it, may have changed."""
        self._changed.set()

    def offers(self) -> list[Offer]:
        """Return the offers of both sides; copies are offered while their homes do not offer the original."""
        standing_in = self.copies.standing_in()
        homes = sorted({copy.home for copy in standing_in})
        return [
            Offer(capability=MANIFEST, params={"state": self._state}),
            *(Offer(capability=name) for name in (READ, "rag.mirror@1.0", "rag.list_mirrors@1.0")),
            *(Offer(capability="rag.list_documents@1.0", params={"copy_of": home}) for home in homes),
        ]

    async def manifest(self, call: Call[CorpusParams, ManifestInput]) -> Reply:
        """Return the signed contents of a corpus that may be copied, or that its copies end."""
        corpus = call.params.corpus
        key = self._copied(call)
        if key is not None:
            output = await self._source.page(key, call.input.offset)
        else:
            ended = self._source.end_of(corpus)
            if ended is None:
                raise self._refusal(call)
            output = ended
        return Reply(output, {"corpus": corpus})

    async def read_document(self, call: Call[CorpusParams, DocumentRange]) -> Reply:
        """Return a part of the file of a document in a corpus that may be copied."""
        corpus, wanted = call.params.corpus, call.input
        key = self._copied(call)
        if key is None:
            raise self._refusal(call)
        output = await self._source.read(key, wanted.doc_cid, wanted.offset, wanted.length)
        if self._copied(call) != key:
            raise self._refusal(call)
        return Reply(output, {"corpus": corpus})

    async def mirror(self, call: Call[CorpusParams, MirrorInput]) -> Reply:
        """Begin or end a copy."""
        corpus, home, ends = call.params.corpus, call.input.home, call.input.end
        if not ends:
            self._check_source(home, corpus)
        row = await (self.copies.end(home, corpus) if ends else self.copies.add(home, corpus))
        return Reply(row, {"corpus": corpus})

    async def version(self, key: str) -> dict[str, Any]:
        """Return the metadata with the present version of a corpus that may be copied; none for others."""
        if self._library.sharing.may_copy(key):
            return {"version": await asyncio.to_thread(self._source.version, key)}
        return {}

    def _check_source(self, home: str, corpus: str) -> None:
        if home == self._own:
            raise HearthNetError("bad_request", f"{corpus} is a corpus of this home itself", details=_PATH)
        if not self._membership.is_member(home):
            raise HearthNetError("not_found", "that home is no member of the community", details=_PATH)
        if corpus == PERSONAL:
            raise HearthNetError("unauthorized", "a corpus personal is never shared", details=_PATH)
        if corpus == SYSTEM:
            raise HearthNetError("bad_request", "corpus system comes with the program", details=_PATH)

    def _copied(self, call: Call[CorpusParams, Any]) -> str | None:
        """Return the key of the corpus that the caller means, if it may be copied."""
        key = self._corpora.find(call, call.params.corpus)
        return key if key is not None and self._library.sharing.may_copy(key) else None

    def _refusal(self, call: Call[CorpusParams, Any]) -> HearthNetError:
        corpus = call.params.corpus
        if self._corpora.find(call, corpus) is None:
            return no_such_corpus(corpus, ())
        return HearthNetError(
            "unauthorized",
            f"corpus {corpus} may not be copied; its owner allows it with: "
            f"hearthnet corpus share {corpus} --copies",
            details=_PATH,
        )

    async def _announce(self) -> None:
        """Renew the offer after each change of a corpus that may be copied, so that its copies follow."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            state = await asyncio.to_thread(self._source.state)
            if state != self._state:
                self._state = state
                self._on_change()
            await asyncio.sleep(_PAUSE_SECONDS)
