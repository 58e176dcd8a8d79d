"""The copies of other homes' corpora that this home keeps.

    asked           the home states that the corpus may be copied: the copy is on record
    fetched         documents come one by one, in the index but not found: the version before answers
    whole           one file is replaced, and the new version answers
    cleared         documents that left the corpus leave the copy
    ended           the home states that copies end, or the owner does: everything is deleted

Each step is on disk before the next one, and a copy that is cut off goes on where it was. The absence of a
home ends no copy.

See: docs/rag.md#copies-of-a-corpus, docs/decisions/0230.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from hearthnet import HearthNetError, NodeContext
from hearthnet.core import TaskSet, now_ms, rfc3339
from hearthnet_rag.library import Library
from hearthnet_rag.mirror.contents import MAX_BYTES, MAX_COPIES, record_of, to_record
from hearthnet_rag.mirror.copy_files import CopyFiles, KeptCopy
from hearthnet_rag.mirror.original_offers import OriginalOffers
from hearthnet_rag.mirror.transfer import Transfer
from hearthnet_rag.search.search import VersionFilter

_log = logging.getLogger(__name__)
LOOK_SECONDS: Final = 300.0
"""Pause after which a home is asked again; it is asked at once when its offers come or change."""
AGAIN_SECONDS: Final = 30.0
"""The same after an attempt that failed."""
_CHANGED_AT_ONCE: Final = 100
"""Documents with another title or other metadata that are replaced together."""
_GONE: Final = frozenset({"not_found", "partition", "timeout"})
_UNREADABLE: Final = frozenset({"bad_request", "payload_too_large"})


class Copies:
    """The copies in the index of `library`.

    `on_change` is called when others answer or another version does, `on_added` after documents came.
    """

    def __init__(
        self, node: NodeContext, library: Library, on_change: Callable[[], None], on_added: Callable[[], None]
    ) -> None:
        self._node = node
        self._library = library
        self._files = CopyFiles(node.data)
        self._on_change = on_change
        self._on_added = on_added
        self._tasks = TaskSet()
        self._saving = asyncio.Lock()
        self._copies: dict[str, KeptCopy] = {}
        self._woken: dict[str, asyncio.Event] = {}
        self._mixed: set[str] = set()
        """Copies of which the index has other documents than the version that answers."""
        self._here: dict[str, tuple[int, int]] = {}
        """Number of documents that are here of the version that is on its way, and of all of them."""
        self._problems: dict[str, str] = {}
        self._originals = OriginalOffers(node.bus, self._tasks, self._homes, self._on_home, on_change)

    async def start(self) -> None:
        """Go on with the copies on disk."""
        for copy in await asyncio.to_thread(self._files.load):
            self._begin(copy)

    async def close(self) -> None:
        """Stop; unfinished work continues at the next start."""
        await self._tasks.close()

    def find(self, corpus: str, home: str = "") -> KeptCopy | None:
        """Return the copy of a corpus that answers: that of `home`, or one whose home does not answer."""
        fitting = [copy for copy in self._copies.values() if copy.corpus == corpus and copy.answers]
        if home:
            return next((copy for copy in fitting if copy.home == home), None)
        return next((copy for copy in fitting if self._stands_in(copy)), None)

    def standing_in(self) -> list[KeptCopy]:
        """Return the copies that answer in place of their homes now."""
        return [copy for copy in self._copies.values() if copy.answers and self._stands_in(copy)]

    def filter_of(self, copy: KeptCopy, wanted: Any) -> Any:
        """Return the filter `wanted` with the restriction to the version that answers, where that matters."""
        if copy.key not in self._mixed:
            return wanted
        return VersionFilter(**msgspec.structs.asdict(wanted), documents=copy.cids())

    def rows(self) -> list[dict[str, Any]]:
        """Return all copies for their owner."""
        return [self._row(copy) for copy in self._copies.values()]

    async def add(self, home: str, corpus: str) -> dict[str, Any]:
        """Begin a copy, if its home agrees now; return its row.

        Raises:
            HearthNetError: `unauthorized` if the home does not let it be copied; `capacity_exceeded` for
                more copies than a home keeps; any error of the call.
        """
        copy = KeptCopy(home, corpus)
        if (row := self._begun(copy)) is not None:
            return row
        statement, _ = await Transfer(self._node, home, corpus).statement()
        if not statement.copies:
            raise HearthNetError("unauthorized", f"the home of {corpus} has ended its copies")
        async with self._saving:
            # Another call may have begun it, or the last that there is room for, while its home was asked.
            if (row := self._begun(copy)) is not None:
                return row
            await asyncio.to_thread(self._files.save, copy)
            self._begin(copy)
        return self._row(copy)

    async def end(self, home: str, corpus: str) -> dict[str, Any]:
        """Begin to delete a copy; return its last row.

        Raises:
            HearthNetError: `not_found` if there is none.
        """
        copy = self._copies.get(KeptCopy(home, corpus).key)
        if copy is None:
            raise HearthNetError("not_found", f"this home has no copy of {corpus} of that home")
        ended = msgspec.structs.replace(copy, ending=True)
        if not copy.ending:
            await self._save(ended)
        self._wake(copy.key)
        return self._row(ended)

    def _begun(self, copy: KeptCopy) -> dict[str, Any] | None:
        """Return the row of a copy that is here already, which is brought up to date; None if it may begin.

        Raises:
            HearthNetError: `capacity_exceeded` for one too many, and for one that is being deleted.
        """
        known = self._copies.get(copy.key)
        if known is not None and known.ending:
            raise HearthNetError(
                "capacity_exceeded",
                "the copy before is being deleted; try again in a moment",
                retry_after_ms=1_000,
            )
        if known is not None:
            self._wake(copy.key)
            return self._row(known)
        if len(self._copies) >= MAX_COPIES:
            raise HearthNetError(
                "capacity_exceeded",
                f"a home keeps at most {MAX_COPIES} copies; end one: hearthnet corpus mirror NAME@HOME --end",
            )
        return None

    def _wake(self, key: str) -> None:
        if (woken := self._woken.get(key)) is not None:
            woken.set()

    def _stands_in(self, copy: KeptCopy) -> bool:
        return not self._originals.offers(copy.home, copy.corpus)

    def _begin(self, copy: KeptCopy) -> None:
        self._copies[copy.key] = copy
        self._woken[copy.key] = asyncio.Event()
        self._mixed.add(copy.key)
        self._originals.begin()
        # Not in the context of the call that began it, which has an end.
        contextvars.Context().run(self._tasks.keep, lambda: self._follow(copy.key), f"copy {copy.key}")

    def _homes(self) -> list[tuple[str, str]]:
        return [(copy.home, copy.corpus) for copy in self._copies.values()]

    def _on_home(self, home: str) -> None:
        for key, copy in self._copies.items():
            if copy.home == home:
                self._wake(key)

    async def _follow(self, key: str) -> None:
        """Keep a copy up to date until it ends, and delete it then."""
        woken = self._woken[key]
        while (copy := self._copies.get(key)) is not None:
            woken.clear()
            try:
                await (self._delete(copy) if copy.ending else self._refresh(key))
                self._problems.pop(key, None)
            except HearthNetError as error:
                self._problems[key] = (
                    "its home does not answer for it" if error.code in _GONE else error.message
                )
                _log.info("the copy %s is brought up to date later: %s", key, error)
            if key in self._problems or not self._is_ending(key):
                pause = AGAIN_SECONDS if key in self._problems else LOOK_SECONDS
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await woken.wait()

    def _is_ending(self, key: str) -> bool:
        copy = self._copies.get(key)
        return copy is None or copy.ending

    async def _refresh(self, key: str) -> None:
        """Ask the home for its version, and fetch it if it is another one.

        Raises:
            HearthNetError: Any error of the calls; `invalid_signature` for a statement that its home did not
                sign; `capacity_exceeded` if the copy becomes too large.
        """
        copy = self._copies[key]
        transfer = Transfer(self._node, copy.home, copy.corpus)
        statement, page = await transfer.statement()
        if not statement.copies:
            await self._save(msgspec.structs.replace(copy, ending=True))
            return
        as_of = min(statement.time, now_ms())
        version = self._node.copies.version(statement.digest)
        if copy.statement is not None and copy.statement["digest"] == statement.digest:
            if key in self._mixed:
                await self._clear(copy, set(copy.cids()))
            if not self._copies[key].ending:
                self._copies[key] = msgspec.structs.replace(copy, as_of=as_of)
            return
        documents = await transfer.documents(statement, page)
        _log.info("the copy %s is brought to version %s, of %d documents", key, version, len(documents))
        unreadable, size = await self._take(copy, transfer, documents)
        if self._copies[key].ending:
            return
        whole = msgspec.structs.replace(
            copy,
            statement=msgspec.to_builtins(statement),
            version=version,
            as_of=as_of,
            documents=tuple(documents.values()),
            unreadable=tuple(unreadable),
            size_bytes=size,
        )
        await self._save(whole)
        await self._clear(whole, set(documents))
        self._here.pop(key, None)
        self._on_added()

    async def _take(
        self, copy: KeptCopy, transfer: Transfer, documents: dict[str, dict[str, Any]]
    ) -> tuple[list[str], int]:
        """Bring `documents` into the index; return those that cannot be read, and the size of all files.

        Those that come are not found before the version with them answers.
        """
        key, size, unreadable = copy.key, 0, list[str]()
        self._mixed.add(key)
        # First what an attempt before left, so that a home that never ends with one cannot fill the disk.
        await self._remove_all_but(copy, {*copy.cids(), *documents})
        known = {record.doc_cid: record_of(record) for record in await self._records(key)}
        for doc_cid in await asyncio.to_thread(self._library.index.documents, key):
            known.setdefault(doc_cid, {})
        changed: list[dict[str, Any]] = []
        for number, (doc_cid, document) in enumerate(documents.items()):
            self._here[key] = number, len(documents)
            if self._copies[key].ending:
                return unreadable, size
            file_size = await transfer.fetch(copy, doc_cid, MAX_BYTES - size)
            size += file_size or 0
            if file_size is None:
                unreadable.append(doc_cid)
            elif doc_cid in known:
                changed += [document] if known[doc_cid] != document else []
            elif not await self._ingest(key, document):
                unreadable.append(doc_cid)
        # Last, since the version before has these, too, with other titles or metadata. Some at a time: each
        # removal writes the journal anew, which for one document at a time would be gigabytes.
        for first in range(0, len(changed), _CHANGED_AT_ONCE):
            some = changed[first : first + _CHANGED_AT_ONCE]
            await asyncio.to_thread(self._library.drop, key, [document["doc_cid"] for document in some])
            unreadable += [one["doc_cid"] for one in some if not await self._ingest(key, one)]
        return unreadable, size

    async def _ingest(self, key: str, document: dict[str, Any]) -> bool:
        """Add a document, whose file is here, to the index; return False if it cannot be read."""
        await self._node.check_room()
        doc_cid = document["doc_cid"]
        blob = await self._node.open_blob(doc_cid, None)
        data = await blob.read(0, blob.size)
        try:
            record = to_record(key, document)
            await asyncio.to_thread(self._library.ingest, record, data)
        except HearthNetError as error:
            if error.code not in _UNREADABLE:
                raise
            _log.warning("%s of the copy %s cannot be read: %s", doc_cid, key, error)
            return False
        return True

    async def _clear(self, copy: KeptCopy, present: set[str]) -> None:
        """Delete the documents that are not in the version that answers."""
        await self._remove_all_but(copy, present)
        self._mixed.discard(copy.key)
        self._on_change()

    async def _remove_all_but(self, copy: KeptCopy, keep: set[str]) -> None:
        here = {record.doc_cid for record in await self._records(copy.key)}
        here.update(await asyncio.to_thread(self._library.index.documents, copy.key))
        if gone := sorted(here - keep):
            await asyncio.to_thread(self._library.drop, copy.key, gone)
        await self._node.copies.release(copy.holder, keep)

    async def _records(self, key: str) -> list[Any]:
        return await asyncio.to_thread(self._library.records, key)

    async def _delete(self, copy: KeptCopy) -> None:
        """Delete a copy; its own file goes last, so that a start in between ends it.

        Raises:
            HearthNetError: `capacity_exceeded` if the disk is full.
        """
        key = copy.key
        self._on_change()
        # The files first: they make the room that the journal takes to be written anew.
        await self._node.copies.release(copy.holder)
        await self._remove_all_but(copy, set())
        async with self._saving:
            await asyncio.to_thread(self._files.remove, copy)
            for known in (self._copies, self._woken, self._here, self._problems):
                known.pop(key, None)
            self._mixed.discard(key)
        self._on_change()
        _log.info("the copy %s has ended", key)

    async def _save(self, copy: KeptCopy) -> None:
        """Write a copy; one that is ending stays so, and one that was deleted is not written again."""
        async with self._saving:
            known = self._copies.get(copy.key)
            if known is None:
                return
            if copy.ending or known.ending:
                # Without its documents, so that it takes next to no room on a disk that is full.
                copy = msgspec.structs.replace(copy, ending=True, documents=(), unreadable=())
            await asyncio.to_thread(self._files.save, copy)
            self._copies[copy.key] = copy

    def _row(self, copy: KeptCopy) -> dict[str, Any]:
        key, count = copy.key, len(copy.documents)
        fetched, wanted = self._here.get(key, (count, count))
        state = "ending" if copy.ending else "whole" if copy.answers else "fetching"
        row = {
            "corpus": copy.corpus,
            "home": copy.home,
            "state": state,
            "version": copy.version,
            "as_of": rfc3339(copy.as_of) if copy.as_of else None,
            "documents": count,
            "documents_fetched": fetched,
            "documents_wanted": wanted,
            "unreadable": len(copy.unreadable),
            "size_bytes": copy.size_bytes,
            "answers": copy.answers and self._stands_in(copy),
        }
        return {**row, "problem": self._problems[key]} if key in self._problems else row
