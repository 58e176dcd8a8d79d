"""An event log in which claim, effect and outcome are one append.

Each event has a subject of its own, `<prefix>.<author>.<client_id>`, in a stream that accepts one message per
subject, permanently. The first to append wins; all later calls read that event: the same digest is a
repetition and returns the first outcome, another digest is refused. The message's sequence is the event's
lamport.

See: docs/protocol/effects.md#event-sourced-effects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from hearthnet.bus.store import Store
from hearthnet.core import ids
from hearthnet.core.canonical_json import content_hash, read_json
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms, rfc3339
from hearthnet.service.call import Call
from hearthnet.service.effects import jetstream_records
from hearthnet.service.effects.day_quota import DayQuota
from hearthnet.service.effects.jetstream_records import ANSWER_SECONDS, DiskGuard, Message, WrongSequence
from hearthnet.trust.authorization.approval import Approval

MAX_FRAME_BYTES: Final = 32 * 1024
"""Maximum size of a frame that an event holds: of the largest post, in any letters, with its approval. Of a
larger one, which has members that nobody knows, the event holds the hash.
"""
MAX_DAY_BYTES: Final = 4_000_000
"""Maximum of bytes that another node, or a guest of this one, may add in a day: some 1,700 posts."""
_PAUSE_SECONDS: Final = 0.2
_LOG: Final = "the event log"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the log.

    `frame` is the author's signed frame (base64url), the proof of its request; of more than `MAX_FRAME_BYTES`
    its hash, and of an event that nobody can erase.
    """

    event_id: str
    event_type: str
    wall_clock: str
    community_id: str
    author: str
    client_id: str
    data: dict[str, Any]
    arguments_digest: str
    frame: str
    approval: Approval | None
    schema_version: int = 1


_EVENT: Final = msgspec.json.Decoder(Event)


class LogAdvanced(Exception):
    """Raised when nothing was appended, since the log has grown beyond the place `after`."""


class Recorded(msgspec.Struct, frozen=True):
    """An event and its place in the community's order; `repeated`: older than this call."""

    event: Event
    lamport: int
    repeated: bool = False


class EventLog:
    """One stream of events under one subject prefix, for appending and reading."""

    def __init__(
        self,
        store: Store,
        stream: str,
        prefix: str,
        community: str,
        *,
        home: Home | None = None,
        own: str = "",
    ) -> None:
        """Use the stream; `home` is the folder of the node that stores it, checked for free space.

        With `own`, the id of that node, what others add in a day is bounded.
        """
        self._store = store
        self._stream = stream
        self._prefix = prefix
        self._community = community
        self._room = DiskGuard(home)
        self._quota = DayQuota(store, own, stream.lower(), MAX_DAY_BYTES) if own else None

    async def append(
        self,
        call: Call[Any, Any],
        event_type: str,
        data: dict[str, Any],
        *,
        after: int | None = None,
        takes_back: bool = False,
        for_good: bool = False,
    ) -> Recorded:
        """Append the event of `call`, at most once ever for its author and client id.

        With `after` it becomes the next event of the log behind that place or is not appended, so that a
        decision made from the log still holds. For an event that `takes_back` others the caller's quota
        is twice as large. One that is `for_good`, because nobody erases it, has `data` and of the call only
        hashes: the frame, with fields that nobody knows, and the approval hold what their authors like.

        Raises:
            LogAdvanced: Another event follows `after`.
            HearthNetError: `bad_request` if that client id was used for other arguments; `expired` for an
                approval that is too old and was never used; `rate_limited` if the caller has added
                `MAX_DAY_BYTES` today; `capacity_exceeded` if the disk is full and `partition` if the log
                cannot be reached, both before the call's deadline.
        """
        subject = self._subject(call)
        if call.evidence is None:
            raise HearthNetError("invalid_signature", "an event takes its author's signed frame")
        if (earlier := await self._read(subject, call.allowed())) is not None:
            return _same(earlier, call)
        call.check_consent()
        now = now_ms()
        event = Event(
            event_id=ids.new_ulid(now),
            event_type=event_type,
            wall_clock=rfc3339(now),
            community_id=self._community,
            author=call.principal,
            client_id=call.idempotency_key,
            data=data,
            arguments_digest=call.arguments_digest,
            frame=content_hash(call.evidence) if for_good else _evidence(call.evidence),
            approval=None if for_good else call.approval,
        )
        encoded = msgspec.json.encode(event)
        if self._quota is None:
            return await self._claim(subject, event, encoded, call, after)
        await self._quota.charge(call.caller, call.principal, len(encoded), reserve=takes_back)
        try:
            return await self._claim(subject, event, encoded, call, after)
        except LogAdvanced:
            self._quota.refund(call.caller, call.principal, len(encoded))
            raise

    async def at(self, lamport: int) -> Recorded | None:
        """Return the event at that place, None if it was erased."""
        found = await jetstream_records.at(self._store, self._stream, lamport, _LOG)
        return None if found is None else _decode(found)

    async def erase(self, lamport: int) -> None:
        """Make the server overwrite the event at that place, if it is still there."""
        await jetstream_records.erase(self._store, self._stream, lamport, _LOG)

    async def known(self, call: Call[Any, Any]) -> bool:
        """Return whether the effect of `call` has happened before."""
        return await self._read(self._subject(call), call.allowed()) is not None

    async def outcome(
        self, principal: str, idempotency_key: str, arguments_digest: str
    ) -> dict[str, Any] | None:
        """Return the output of the call that appended an event (`Service.outcome`).

        None if no call with those arguments did.
        """
        if not ids.is_ulid(idempotency_key):
            return None
        found = await self._read(self._place_of(principal, idempotency_key), ANSWER_SECONDS)
        if found is None or found.event.arguments_digest != arguments_digest:
            return None
        return {"event_id": found.event.event_id, "lamport": found.lamport}

    async def place(self) -> tuple[str, int]:
        """Return the identity of this log and its last event; a log made anew is another one."""
        async with jetstream_records.answering(_LOG):
            info = await self._store.js.stream_info(self._stream)
        return f"{self._stream} {info.created}", int(info.state.last_seq)

    async def read(self, after: int) -> AsyncIterator[list[Recorded]]:
        """Yield the events after place `after`, in order and in batches, up to the present end.

        Raises:
            HearthNetError: `partition` if the log does not answer.
        """
        _, upto = await self.place()
        async for batch in jetstream_records.read(
            self._store, self._stream, f"{self._prefix}.>", after, upto, _LOG
        ):
            yield [_decode(message) for message in batch]

    async def watch(self, woken: asyncio.Event) -> None:
        """Set `woken` at every new event, and whenever the connection is restored."""

        async def back() -> None:
            woken.set()

        await self._store.link.subscribe(f"{self._prefix}.>", woken.set)
        self._store.link.on_restored(back)

    def _subject(self, call: Call[Any, Any]) -> str:
        if call.idempotency_key != call.body["input"].get("client_id"):
            raise HearthNetError("bad_request", "the header's idempotency_key is not the body's client_id")
        return self._place_of(call.principal, call.idempotency_key)

    def _place_of(self, principal: str, client_id: str) -> str:
        return f"{self._prefix}.{ids.subject_token(principal)}.{client_id}"

    async def _claim(
        self, subject: str, event: Event, data: bytes, call: Call[Any, Any], after: int | None
    ) -> Recorded:
        """Append until the winner is known; a lost answer is settled by reading the subject."""
        from nats.js import api

        unused = {str(api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value): "0"}
        if after is not None:
            unused[str(api.Header.EXPECTED_LAST_SEQUENCE.value)] = str(after)
        await self._room.check()
        clock = asyncio.get_running_loop().time
        until = clock() + call.allowed()
        while True:
            try:
                place = await jetstream_records.write_until(
                    self._store,
                    self._stream,
                    subject,
                    data,
                    expected=unused,
                    until=until,
                    room=self._room,
                    what=_LOG,
                )
                return Recorded(event, place)
            except WrongSequence:
                winner = await self._read(subject, until - clock())
                if winner is not None:
                    return _same(winner, call, own=event.event_id)
                if after is not None:
                    raise LogAdvanced from None
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _read(self, subject: str, seconds: float) -> Recorded | None:
        found = await jetstream_records.last(self._store, self._stream, subject, _LOG, seconds)
        return None if found is None else _decode(found)


def _evidence(frame: bytes) -> str:
    """Return the caller's signed frame as events keep it: whole, or its hash if large."""
    return ids.b64(frame) if len(frame) <= MAX_FRAME_BYTES else content_hash(frame)


def _decode(message: Message) -> Recorded:
    try:
        return Recorded(read_json(message.data, _EVENT), message.sequence)
    except HearthNetError as error:
        raise HearthNetError(
            "internal_error", f"event {message.sequence} of the log is malformed: {error.message}"
        ) from error


def _same(earlier: Recorded, call: Call[Any, Any], own: str = "") -> Recorded:
    if earlier.event.arguments_digest != call.arguments_digest:
        raise HearthNetError(
            "bad_request",
            f"client_id {earlier.event.client_id} was used for something else; make a new one",
            details={"path": "/input/client_id", "rule": "reused"},
        )
    return Recorded(earlier.event, earlier.lamport, repeated=earlier.event.event_id != own)
