"""What a node signs, checks and stores for copies of corpora between homes.

The files of a copy are held under a name of their own, so that ending the copy takes nothing that is here for
another reason.

See: docs/rag.md#copies-of-a-corpus, docs/decisions/0230.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final

import msgspec

from hearthnet.bus.blobs.blob_store import Blobs
from hearthnet.bus.blobs.metadata import Hold
from hearthnet.bus.bus import Bus
from hearthnet.core.config import FileConfig
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.protocol.manifest import manifest_of
from hearthnet.trust.corpus_statement import (
    CorpusStatement,
    checked_statement,
    digest_of,
    sign_statement,
    version_of,
)

_MB: Final = 1_000_000


class CorpusCopies:
    """Statements and files of copies, for the node of `bus`; `blobs` returns its content store."""

    def __init__(self, bus: Bus, blobs: Callable[[], Awaitable[Blobs]], settings: FileConfig) -> None:
        self._bus = bus
        self._blobs = blobs
        self._settings = settings

    def digest(self, documents: Sequence[dict[str, Any]]) -> str:
        """Return the digest of the records of documents; raises as `digest_of`."""
        return digest_of(documents)

    def version(self, digest: str) -> str:
        """Return the short name of the state of a corpus with this digest."""
        return version_of(digest)

    def state(self, corpus: str, digest: str, count: int) -> dict[str, Any]:
        """Return the signed statement, as JSON, that a corpus of this node has these documents now."""
        return self._signed(corpus, digest, count, copies=True)

    def end(self, corpus: str) -> dict[str, Any]:
        """Return the signed statement, as JSON, that copies of a corpus of this node end."""
        return self._signed(corpus, "", 0, copies=False)

    def check(self, value: Any, home: str, corpus: str) -> CorpusStatement:
        """Return the statement in `value` about a corpus of `home`; raises as `checked_statement`."""
        return checked_statement(value, self._bus.peer.community, home, corpus)

    async def keep(self, cid: str, data: bytes, holder: str) -> None:
        """Store a file of a copy for `holder`, within the limits that the file service has.

        Raises:
            HearthNetError: `bad_request` if the content is not that of `cid`; `capacity_exceeded` without
                room.
        """
        if manifest_of(data).cid != cid:
            raise HearthNetError("bad_request", f"the content is not that of {cid[:23]}…")
        blobs = await self._blobs()
        if await blobs.hold(cid, Hold(by=holder)):
            return
        blobs.check_room(len(data), self._settings.keep_free_mb * _MB)
        await blobs.check_quota(len(data), self._settings.quota_mb * _MB)
        await blobs.put_bytes(data, Hold(by=holder))

    async def size(self, cid: str, holder: str) -> int | None:
        """Return the size in bytes of a file that `holder` has; None if it has to be sent.

        Content that is here for another reason has to be sent, too: knowing a hash must not open it.
        """
        entry = await (await self._blobs()).find(cid)
        if entry is None or all(hold.by != holder for hold in entry.notes.holds):
            return None
        return entry.size

    async def release(self, holder: str, keep: Collection[str] = ()) -> None:
        """End the holds of `holder`, except on `keep`; content without other holders is deleted."""
        blobs = await self._blobs()
        async for entry, _ in blobs.entries():
            is_held = not entry.deleted and any(hold.by == holder for hold in entry.notes.holds)
            if is_held and entry.name not in keep:
                await blobs.release(entry.name, {holder})

    def _signed(self, corpus: str, digest: str, count: int, *, copies: bool) -> dict[str, Any]:
        peer = self._bus.peer
        statement = CorpusStatement(
            community=peer.community,
            home=peer.node_id,
            corpus=corpus,
            copies=copies,
            count=count,
            digest=digest,
            time=now_ms(),
        )
        signed: dict[str, Any] = msgspec.to_builtins(sign_statement(statement, peer.identity))
        return signed
