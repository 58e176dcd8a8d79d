"""What a copy fetches from its home: the signed contents of the corpus, and the files of its documents.

Nothing that arrives is used before it was checked: contents against the signature and the digest in it, a
file against its CID.
"""

from __future__ import annotations

from typing import Any, Final

from hearthnet import Bus, HearthNetError, NodeContext
from hearthnet.core import unb64
from hearthnet_rag.ingest.document_import import LARGEST_BYTES
from hearthnet_rag.mirror.contents import RANGE_BYTES, Contents
from hearthnet_rag.mirror.copy_files import KeptCopy
from hearthnet_rag.mirror.source import NO_DOCUMENT

MANIFEST: Final = "rag.manifest@1.0"
READ: Final = "rag.read_document@1.0"


class Transfer:
    """Calls of this node to the home of one copy."""

    def __init__(self, node: NodeContext, home: str, corpus: str) -> None:
        self._node = node
        self._bus: Bus = node.bus
        self._home = home
        self._corpus = corpus

    async def statement(self) -> tuple[Any, dict[str, Any]]:
        """Return the checked statement about the corpus, and the first page with it.

        Raises:
            HearthNetError: `invalid_signature` if the home did not sign it; any error of the call.
        """
        page = await self._page(0)
        return self._node.copies.check(page["statement"], self._home, self._corpus), page

    async def documents(self, statement: Any, page: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the records by CID that `statement` covers, of which `page` has the first.

        Raises:
            HearthNetError: `invalid_signature` if they are others than the home has signed;
                `capacity_exceeded` if they are too many; `bad_request` if the corpus changed since.
        """
        contents = Contents(statement.count)
        while len(contents.documents) < statement.count:
            contents.add(page["documents"])
            if page["next"] is None:
                break
            if page["next"] != len(contents.documents):
                raise HearthNetError("bad_request", "a page of documents does not follow the one before")
            page = await self._page(page["next"])
            again = self._node.copies.check(page["statement"], self._home, self._corpus)
            if again.digest != statement.digest:
                raise HearthNetError("bad_request", "the corpus changed while its contents were read")
        if self._node.copies.digest([*contents.documents.values()]) != statement.digest:
            raise HearthNetError("invalid_signature", "the documents are others than their home has signed")
        return contents.documents

    async def fetch(self, copy: KeptCopy, doc_cid: str, room: int) -> int | None:
        """Make sure that the file of a document is here; return its size, None if its home lost it.

        Raises:
            HearthNetError: `capacity_exceeded` if it has more than `room` bytes or the disk is full;
                `bad_request` for other content than that of its CID; any error of the call.
        """
        size = await self._node.copies.size(doc_cid, copy.holder)
        if size is not None:
            return size
        try:
            data = await self._read(doc_cid, min(room, LARGEST_BYTES))
        except HearthNetError as error:
            # Only the home itself says so: an error of the bus has no such path.
            if error.code == "not_found" and error.details.get("path") == NO_DOCUMENT:
                return None
            raise
        await self._node.copies.keep(doc_cid, data, copy.holder)
        return len(data)

    async def _read(self, doc_cid: str, room: int) -> bytes:
        data = bytearray()
        while True:
            asked = {"doc_cid": doc_cid, "offset": len(data), "length": RANGE_BYTES}
            output = await self._call(READ, asked)
            size, part = output["size_bytes"], unb64(output["data_b64"])
            if size > room:
                raise HearthNetError("capacity_exceeded", f"a document of {size} bytes is too large for it")
            data += part
            if len(data) >= size:
                return bytes(data)
            if not part:
                raise HearthNetError("bad_request", f"{doc_cid[:23]}… ends before its {size} bytes")

    async def _page(self, offset: int) -> dict[str, Any]:
        return await self._call(MANIFEST, {"offset": offset})

    async def _call(self, capability: str, given: dict[str, Any]) -> dict[str, Any]:
        body = {"params": {"corpus": self._corpus}, "input": given}
        return dict((await self._bus.call(capability, body, node=self._home)).output)
