"""What this home says of its own corpora that others may keep copies of.

See: docs/rag.md#copies-of-a-corpus.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

from hearthnet import HearthNetError, NodeContext
from hearthnet.core import b64, content_hash
from hearthnet_rag.library import Library
from hearthnet_rag.mirror.contents import page_at, record_of
from hearthnet_rag.ownership import name_of

NO_DOCUMENT: Final = "/input/doc_cid"
"""Path in the error for a document that the corpus has not, or whose file its home has lost."""
_STATE_CHARACTERS: Final = 12


class Manifest(NamedTuple):
    """The documents of a corpus, and the digest of their records."""

    documents: list[dict[str, Any]]
    digest: str
    cids: frozenset[str]
    change: int


class Source:
    """The corpora of `library` that others may copy."""

    def __init__(self, node: NodeContext, library: Library) -> None:
        self._node = node
        self._library = library
        self._manifests: dict[str, Manifest] = {}

    def manifest(self, key: str) -> Manifest:
        """Return the present documents of a corpus. Blocks."""
        change = self._library.changes()
        known = self._manifests.get(key)
        if known is not None and known.change == change:
            return known
        documents = [record_of(record) for record in self._library.records(key)]
        digest = self._node.copies.digest(documents)
        cids = frozenset(document["doc_cid"] for document in documents)
        made = self._manifests[key] = Manifest(documents, digest, cids, change)
        return made

    def version(self, key: str) -> str:
        """Return the short name of the present state of a corpus. Blocks."""
        return self._node.copies.version(self.manifest(key).digest)

    def state(self) -> str:
        """Return a short text that changes with what `page` returns for any corpus. Blocks."""
        sharing = self._library.sharing
        versions = [f"{key} {self.manifest(key).digest}" for key in sharing.copied()]
        return content_hash("\n".join([*versions, *sharing.ended()]).encode())[7 : 7 + _STATE_CHARACTERS]

    async def page(self, key: str, offset: int) -> dict[str, Any]:
        """Return a signed statement about a corpus, and its records from `offset` on."""
        manifest = await asyncio.to_thread(self.manifest, key)
        documents, following = page_at(manifest.documents, offset)
        statement = self._node.copies.state(name_of(key), manifest.digest, len(manifest.documents))
        return {"statement": statement, "documents": documents, "next": following}

    def end_of(self, name: str) -> dict[str, Any] | None:
        """Return the signed statement that copies of the corpus `name` end; None if there were never any."""
        if all(name_of(key) != name for key in self._library.sharing.ended()):
            return None
        return {"statement": self._node.copies.end(name), "documents": [], "next": None}

    async def read(self, key: str, doc_cid: str, offset: int, length: int) -> dict[str, Any]:
        """Return up to `length` bytes of the file of a document, in base64url, and its size.

        Raises:
            HearthNetError: `not_found` if the corpus has no such document, or its file is lost.
        """
        manifest = await asyncio.to_thread(self.manifest, key)
        if doc_cid not in manifest.cids:
            raise _no_document(doc_cid)
        try:
            blob = await self._node.open_blob(doc_cid, None)
            data = await blob.read(offset, length) if offset < blob.size else b""
        except HearthNetError as error:
            if error.code == "partition":
                raise
            raise _no_document(doc_cid) from error
        return {"data_b64": b64(data), "size_bytes": blob.size}


def _no_document(doc_cid: str) -> HearthNetError:
    return HearthNetError(
        "not_found", f"the corpus has no document {doc_cid[:23]}", details={"path": NO_DOCUMENT}
    )
