"""The store of runs in the node's own JetStream.

rn.run.<run>                      the run as it was saved last, sealed
rn.said.<run>.<confirmation id>   a signed decision, once
rn.wake.<run>                     not stored: a call was decided, or the run was taken over

See: docs/protocol/agent.md#stored-subjects, docs/decisions/0070.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from hearthnet.agent.persistence.run_store import Stop, StoredDocument, Superseded, Wake, entries_of
from hearthnet.bus.store import Store
from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.service.effects import jetstream_records
from hearthnet.service.effects.audit_log import AuditLog
from hearthnet.service.effects.jetstream_records import (
    BEGUN_SHARE,
    DiskGuard,
    Message,
    StoreTimeout,
    WrongSequence,
)
from hearthnet.trust import audit_chain
from hearthnet.trust.audit_chain import AuditEntry
from hearthnet.trust.keys import Identity

if TYPE_CHECKING:
    from nats.aio.msg import Msg

STREAM: Final = "RUNS"
WRITE_SECONDS: Final = 15.0
"""The time for which a write is repeated: longer than a server takes to restart."""
READ_SECONDS: Final = 10.0
_ONCE_SECONDS: Final = 2.0
_RUN: Final = "rn.run."
_WHAT: Final = "the store of runs"
_PAUSE_SECONDS: Final = 0.1


class _Parts(NamedTuple):
    store: Store
    audit: AuditLog


class StoredRuns:
    """The runs of the node that owns the store; `RunStore` specifies the methods."""

    def __init__(
        self, store: Store | Callable[[], Awaitable[Store]], identity: Identity, room: DiskGuard | None = None
    ) -> None:
        """Use `store`, or the function that connects to it at first need.

        `room` is checked before each write.
        """
        self._store = store
        self._identity = identity
        self._room = room or DiskGuard(None)
        self._parts: _Parts | None = None
        self._connecting = asyncio.Lock()
        self._watching: list[Wake] = []

    async def close(self) -> None:
        """Close the connection to the store, where this object has opened it."""
        if self._parts is not None and not isinstance(self._store, Store):
            await self._parts.store.close()

    async def _open(self) -> _Parts:
        async with self._connecting:
            if self._parts is None:
                store = self._store if isinstance(self._store, Store) else await self._store()
                self._parts = _Parts(store, AuditLog(store, self._identity, self._room))
                store.link.on_restored(self._back)
            return self._parts

    async def load(self, run: str) -> StoredDocument | None:
        found = await self._last(_RUN + run)
        # An erased run has a document without content.
        return None if found is None or not found.data else StoredDocument(found.data, found.sequence)

    async def save(self, run: str, data: bytes, revision: int) -> int:
        # A run that is under way may still save its end when there is no room for a new one.
        return await self._write(_RUN + run, data, revision, share=BEGUN_SHARE if revision else 1.0)

    async def runs(self) -> list[str]:
        store = (await self._open()).store
        async with jetstream_records.answering(_WHAT):
            info = await store.js.stream_info(STREAM, subjects_filter=_RUN + "*")
        return sorted(subject.removeprefix(_RUN) for subject in info.state.subjects or {})

    async def erase(self, run: str) -> None:
        """Replace the document and the decisions of a run by nothing; a process that drives it stops."""
        store = (await self._open()).store
        async with jetstream_records.answering(_WHAT):
            info = await store.js.stream_info(STREAM, subjects_filter=_decision_subject(run, "*"))
        for subject in (_RUN + run, *(info.state.subjects or {})):
            # The stream keeps the newest message of a subject, and denies to remove one.
            while (found := await self._last(subject)) is not None and found.data:
                with contextlib.suppress(Superseded):
                    await self._write(subject, b"", found.sequence, share=BEGUN_SHARE)
        await self.notify(run)

    async def version(self) -> int:
        store = (await self._open()).store
        async with jetstream_records.answering(_WHAT):
            info = await store.js.stream_info(STREAM)
        return int(info.state.last_seq)

    async def load_decision(self, run: str, confirmation_id: str) -> bytes | None:
        found = await self._last(_decision_subject(run, confirmation_id))
        return None if found is None else found.data

    async def save_decision(self, run: str, confirmation_id: str, data: bytes) -> bytes:
        with contextlib.suppress(Superseded):
            await self._write(_decision_subject(run, confirmation_id), data, 0, share=BEGUN_SHARE)
            return data
        return await self.load_decision(run, confirmation_id) or data

    async def watch(self, run: str, wake: Wake) -> Stop:
        async def on_message(_message: Msg) -> None:
            wake()

        store = (await self._open()).store
        async with jetstream_records.answering(_WHAT):
            subscription = await store.link.client.subscribe(_wake(run), cb=on_message)
        self._watching.append(wake)

        async def stop() -> None:
            self._watching.remove(wake)
            with contextlib.suppress(HearthNetError):
                async with jetstream_records.answering(_WHAT):
                    await subscription.unsubscribe()

        return stop

    async def _back(self) -> None:
        """Wake all watchers after a reconnection, since messages may have been missed."""
        for wake in list(self._watching):
            wake()

    async def notify(self, run: str) -> None:
        client = (await self._open()).store.link.client
        async with jetstream_records.answering(_WHAT):
            await client.publish(_wake(run), b"")
            await client.flush()

    async def audit_position(self) -> int:
        return (await (await self._open()).audit.end()).sequence

    async def append_audit(self, entry: AuditEntry, since: int) -> int:
        return await (await self._open()).audit.append(entry, WRITE_SECONDS, since=since)

    async def audit_entries(self, run: str, since: int) -> list[AuditEntry]:
        log: list[AuditEntry] = []
        audit_log = (await self._open()).audit
        async for batch in audit_log.lines(since, await self.audit_position()):
            # Only those of the run are held, however many others were written meanwhile.
            log = entries_of(run, log + [audit_chain.read(message.data) for message in batch])
        return log

    async def _last(self, subject: str) -> Message | None:
        """Return the newest message of a subject; retry while the server restarts."""
        store = (await self._open()).store
        clock = asyncio.get_running_loop().time
        until = clock() + READ_SECONDS
        while True:
            try:
                return await jetstream_records.last(store, STREAM, subject, _WHAT, _ONCE_SECONDS)
            except HearthNetError:
                if clock() >= until:
                    raise
            await jetstream_records.reconnected(store, until - clock())
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _write(self, subject: str, data: bytes, revision: int, *, share: float) -> int:
        """Append a message if the subject's last one has the number `revision`.

        No two callers write the same bytes, so after a lost reply the stored bytes show whose write
        succeeded.
        """
        from nats.js import api

        store = (await self._open()).store
        limit = store.link.client.max_payload
        if len(data) > limit:
            raise HearthNetError(
                "payload_too_large",
                f"the run has {len(data)} bytes to save, the server takes {limit}; ask with less in it",
                details={"limit": limit},
            )
        await self._room.check(share)
        clock = asyncio.get_running_loop().time
        until = clock() + WRITE_SECONDS
        unsure = False
        while (left := until - clock()) > 0:
            expected = {str(api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value): str(revision)}
            try:
                ack = await jetstream_records.write(
                    store, STREAM, subject, data, expected=expected, seconds=left
                )
            except WrongSequence:
                now = await self._last(subject) if unsure else None
                if now is None or now.data != data:
                    raise Superseded from None
                return now.sequence
            except StoreTimeout:
                unsure = True
                self._room.unwritten()
                await self._room.check(share)
                await jetstream_records.reconnected(store, until - clock())
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                self._room.written()
                return int(ack.seq)
        raise Unavailable(f"{_WHAT} did not answer in time; is the node running?", rule="store_silent")


def _decision_subject(run: str, confirmation_id: str) -> str:
    return f"rn.said.{run}.{confirmation_id}"


def _wake(run: str) -> str:
    return f"rn.wake.{run}"
