"""An event log in which claim, effect and outcome are one append.

Each event has a subject of its own, `<prefix>.<owner>.<client_id>`, in a stream that accepts one message per
subject, permanently. The first to append wins; all later calls read that event: the same digest is a
repetition and returns the first outcome, another digest is refused. The message's sequence is the event's
lamport.

Events that happened at other homes are kept in the same stream, as their texts came, under
`<prefix>.<home>.<sequence>-<hash>`: so both are in one order, that of this home
(service/eventlog/topic_log.py).

See: docs/protocol/effects.md#event-sourced-effects.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from hearthnet.bus.store import Store
from hearthnet.core import ids
from hearthnet.core.canonical_json import content_hash, read_json
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.restore_mark import read_mark
from hearthnet.core.times import now_ms, rfc3339
from hearthnet.service.call import Call
from hearthnet.service.effects import direct_reads, jetstream_records
from hearthnet.service.effects.day_quota import DayQuota
from hearthnet.service.effects.jetstream_records import ANSWER_SECONDS, DiskGuard, Message, WrongSequence
from hearthnet.service.effects.kept_messages import KeptMessages
from hearthnet.trust.authorization.approval import Approval

MAX_FRAME_BYTES: Final = 32 * 1024
"""Maximum size of a frame that an event holds: of the largest post, in any letters, with its approval. Of a
larger one, which has members that nobody knows, the event holds the hash.
"""
MAX_DAY_BYTES: Final = 4_000_000
"""Maximum of bytes that another node, or a guest of this one, may add in a day: some 1,700 posts."""
_PAUSE_SECONDS: Final = 0.2
_KEEP_SECONDS: Final = 8.0
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
    """An event and its place in this home's log; `repeated`: older than this call.

    `home` is the node where it happened, empty for this one.
    """

    event: Event
    lamport: int
    repeated: bool = False
    home: str = ""


class KeptText(NamedTuple):
    """The text of an event of another home, and what names its entry."""

    home: str
    sequence: int
    hash: str
    text: str


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
        mark = None if home is None else read_mark(home)
        self._restored = "" if mark is None else f"restored at {mark.restored_at}"
        self._quota = DayQuota(store, own, stream.lower(), MAX_DAY_BYTES) if own else None
        self._watching: list[asyncio.Event] = []
        self._kept_last = KeptMessages()

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
        """Append the event of `call`, at most once ever for its owner and client id.

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
        if (earlier := await self._find(call)) is not None:
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
        return await self._find(call) is not None

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
        """Return the identity of this log and its last event.

        A log that was made anew, or restored from a backup, is another one.
        """
        async with jetstream_records.answering(_LOG):
            info = await self._store.js.stream_info(self._stream)
        restored = f" {self._restored}" if self._restored else ""
        return f"{self._stream} {info.created}{restored}", int(info.state.last_seq)

    async def read(self, after: int) -> AsyncIterator[list[Recorded]]:
        """Yield the events after place `after`, in order and in batches, up to the present end.

        What this process has kept last is not read again.

        Raises:
            HearthNetError: `partition` if the log does not answer.
        """
        if kept := self._kept_last.take(after):
            async for batch in self._messages(after, kept[0].sequence - 1):
                yield [_decode(message) for message in batch]
            yield [_decode(message) for message in kept]
            after = kept[-1].sequence
        async for batch in self.messages(after):
            yield [_decode(message) for message in batch]

    async def messages(self, after: int) -> AsyncIterator[list[Message]]:
        """Yield the messages after place `after` as they are stored, as `read`.

        Raises:
            HearthNetError: As `read`.
        """
        _, upto = await self.place()
        async for batch in self._messages(after, upto):
            yield batch

    def _messages(self, after: int, upto: int) -> AsyncIterator[list[Message]]:
        subject = f"{self._prefix}.>"
        return direct_reads.read(self._store, self._stream, subject, after, upto, _LOG)

    async def keep(self, texts: Sequence[KeptText]) -> range:
        """Store the texts of events of other homes, each once, together where none is there yet.

        Return the places of the last of those that were stored together.

        Raises:
            HearthNetError: `capacity_exceeded` if the disk is full; `partition` if the log cannot be reached.
        """
        await self._room.check()
        if len(texts) <= jetstream_records.MAX_BATCH:
            with contextlib.suppress(WrongSequence):
                return await self._keep(texts)
            if len(texts) == 1:
                return range(0)
        middle = min(jetstream_records.MAX_BATCH, (len(texts) + 1) // 2)
        places = range(0)
        for half in (texts[:middle], texts[middle:]):
            places = await self.keep(half) or places
        return places

    async def _keep(self, texts: Sequence[KeptText]) -> range:
        messages = [(self._kept(one.home, one.sequence, one.hash), one.text.encode()) for one in texts]
        *ahead, (subject, data) = messages
        last = await jetstream_records.write_until(
            self._store,
            self._stream,
            subject,
            data,
            expected={"Nats-Expected-Last-Subject-Sequence": "0"},
            until=asyncio.get_running_loop().time() + _KEEP_SECONDS,
            room=self._room,
            ahead=ahead,
            what=_LOG,
        )
        places = range(last - len(texts) + 1, last + 1)
        self._kept_last.add(places.start, messages)
        for woken in self._watching:
            woken.set()
        return places

    async def texts(self, wanted: Sequence[tuple[int, str, int, str]]) -> list[str]:
        """Return the texts of events, each by its place, or, with 0, by what `keep` was given.

        Empty for those that were erased.

        Raises:
            HearthNetError: `partition` if the log does not answer.
        """
        kept = {one: self._kept(*one[1:]) for one in wanted if not one[0]}
        own, others = await asyncio.gather(
            direct_reads.by_number(self._store, self._stream, {one[0] for one in wanted if one[0]}, _LOG),
            direct_reads.by_subject(self._store, self._stream, kept.values(), _LOG),
        )
        found = (own.get(one[0]) if one[0] else others.get(kept[one]) for one in wanted)
        return ["" if message is None else message.data.decode() for message in found]

    async def watch(self, woken: asyncio.Event) -> None:
        """Set `woken` at every new event, and whenever the connection is restored."""

        self._watching.append(woken)
        await self._store.link.subscribe(f"{self._prefix}.>", woken.set)

    def _subject(self, call: Call[Any, Any]) -> str:
        if call.idempotency_key != call.body["input"].get("client_id"):
            raise HearthNetError("bad_request", "the header's idempotency_key is not the body's client_id")
        return self._place_of(call.owner, call.idempotency_key)

    async def _find(self, call: Call[Any, Any]) -> Recorded | None:
        """Return the event of `call`, of its owner or of its principal.

        The principal's is from before it was known whose device that is.
        """
        owners = dict.fromkeys((call.owner, call.principal))
        places = (self._place_of(one, call.idempotency_key) for one in owners)
        found = await asyncio.gather(*(self._read(place, call.allowed()) for place in places))
        return next(filter(None, found), None)

    def _kept(self, home: str, sequence: int, hash_: str) -> str:
        return f"{self._prefix}.{ids.token_form(home)}.{sequence}-{hash_[-16:]}"

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


def decode_event(text: str | bytes) -> Event:
    """Read the text of an event.

    Raises:
        HearthNetError: `bad_request` for anything else.
    """
    return read_json(text.encode() if isinstance(text, str) else text, _EVENT)


def home_of(message: Message) -> str:
    """Return the other home where the event in `message` happened, empty for this one.

    A client id is a ULID, in which there is no hyphen.
    """
    owner, _, name = message.subject.rpartition(".")
    return ids.from_token_form(owner.rpartition(".")[2]) if "-" in name else ""


def _decode(message: Message) -> Recorded:
    try:
        return Recorded(decode_event(message.data), message.sequence, home=home_of(message))
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
