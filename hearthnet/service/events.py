"""An event log in which claim, effect and outcome are one append (wire.md, "Effects happen once").

Each event has a subject of its own, `<prefix>.<author>.<client_id>`, in a stream that takes one message a
subject, for
good. Whoever appends first wins; everybody else reads what is there: the same digest is a repetition and
gets the first outcome,
another digest is refused. The message's sequence is the event's lamport.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hearthnet import ids
from hearthnet.bus.store import Store
from hearthnet.canonical import read_json
from hearthnet.config import FULL_BYTES, ROOM_BYTES, Home
from hearthnet.errors import HearthNetError
from hearthnet.service.call import Call
from hearthnet.times import now_ms, rfc3339
from hearthnet.trust.approval import Approval, check_time

if TYPE_CHECKING:
    from nats.js.api import RawStreamMsg

_TAKEN: Final = frozenset({10071, 10077})
_APPEND_SECONDS: Final = 2.0
_ANSWER_SECONDS: Final = 3.0
_PAUSE_SECONDS: Final = 0.2
_SPARE_SECONDS: Final = 1.0
"""How long before the caller gives up it has an answer, at the latest."""
_BATCH: Final = 500
_FEW: Final = 8
_IDLE_SECONDS: Final = 30.0


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """What the log keeps.

    `frame` is the author's signed frame (base64url), the proof that it asked for this.
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


class Recorded(msgspec.Struct, frozen=True):
    """An event and its place in the community's order. `repeated`: it was there before this call."""

    event: Event
    lamport: int
    repeated: bool = False


class EventLog:
    """One stream of events under one subject prefix, as a service appends to it and reads it."""

    def __init__(
        self, store: Store, stream: str, prefix: str, community: str, *, home: Home | None = None
    ) -> None:
        """`home` is the folder of the node that keeps the log, where that is known: its disk may be full."""
        self._store = store
        self._stream = stream
        self._prefix = prefix
        self._community = community
        self._home = home
        self._needed = FULL_BYTES

    async def append(self, call: Call[Any, Any], event_type: str, data: dict[str, Any]) -> Recorded:
        """Makes the effect of `call` happen, at most once ever for its author and client id.

        Raises `bad_request` where that client id was used for other arguments, `expired` for an approval
        that is too old and was
        never used, `capacity_exceeded` where the disk is full, `partition` where the log cannot be
        reached; the last two before the call's deadline.
        """
        subject = self._subject(call)
        if call.evidence is None:
            raise HearthNetError("invalid_signature", "an event takes its author's signed frame")
        if (earlier := await self._read(subject, _allowed(call))) is not None:
            return _same(earlier, call)
        if call.approval is not None:
            check_time(call.approval, now_ms())
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
            frame=ids.b64(call.evidence),
            approval=call.approval,
        )
        return await self._claim(subject, event, call)

    async def known(self, call: Call[Any, Any]) -> bool:
        """Whether the effect of `call` has happened before."""
        return await self._read(self._subject(call), _allowed(call)) is not None

    async def place(self) -> tuple[str, int]:
        """Which log this is, and its last event: a log that was lost and made anew is another one."""
        async with _answering():
            info = await self._store.js.stream_info(self._stream)
        return f"{self._stream} {info.created}", int(info.state.last_seq)

    async def read(self, after: int) -> AsyncIterator[list[Recorded]]:
        """The events after place `after`, in order and in batches, up to what is there when it is asked.

        Raises `partition` where the log does not answer.
        """
        _, last = await self.place()
        while after < last:
            few = last - after <= _FEW
            async with _answering():
                batch = await (self._singly(after, last) if few else self._together(after, last))
            after = batch[-1].lamport
            yield batch

    async def _singly(self, after: int, last: int) -> list[Recorded]:
        """A few events, without a reader that the server would have to remember."""
        found = [
            await self._store.js.get_msg(self._stream, seq, direct=True) for seq in range(after + 1, last + 1)
        ]
        return [_decode(message.data or b"", message.seq or 0) for message in found]

    async def _together(self, after: int, last: int) -> list[Recorded]:
        """Up to `_BATCH` events, through a reader of the server's that is taken back."""
        from nats import errors
        from nats.js import api

        config = api.ConsumerConfig(
            deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=after + 1,
            ack_policy=api.AckPolicy.NONE,
            inactive_threshold=_IDLE_SECONDS,
            mem_storage=True,
        )
        js = self._store.js
        reader = await js.pull_subscribe(f"{self._prefix}.>", stream=self._stream, config=config)
        try:
            messages = await reader.fetch(min(_BATCH, last - after), timeout=_APPEND_SECONDS)
        finally:
            # Where the connection is gone, the server forgets the reader by itself.
            with contextlib.suppress(errors.Error, TimeoutError):
                await reader.unsubscribe()
                await js.delete_consumer(self._stream, str(config.name))
        return [_decode(message.data, message.metadata.sequence.stream) for message in messages]

    async def watch(self, woken: asyncio.Event) -> None:
        """Sets `woken` whenever somebody appends an event, and whenever the connection comes back."""

        async def back() -> None:
            woken.set()

        await self._store.link.subscribe(f"{self._prefix}.>", lambda *_: woken.set())
        self._store.link.on_back(back)

    def _subject(self, call: Call[Any, Any]) -> str:
        if call.idempotency_key != call.body["input"].get("client_id"):
            raise HearthNetError("bad_request", "the header's idempotency_key is not the body's client_id")
        return f"{self._prefix}.{ids.token_form(call.principal)}.{call.idempotency_key}"

    async def _claim(self, subject: str, event: Event, call: Call[Any, Any]) -> Recorded:
        """Appends until it is known who won; a lost answer is settled by reading the subject."""
        from nats import errors
        from nats.js import api
        from nats.js import errors as js_errors

        data = msgspec.json.encode(event)
        headers = {str(api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value): "0"}
        await self._check_room()
        clock = asyncio.get_running_loop().time
        until = clock() + _allowed(call)
        while (left := until - clock()) > 0:
            try:
                ack = await self._store.js.publish(
                    subject, data, timeout=min(_APPEND_SECONDS, left), stream=self._stream, headers=headers
                )
                self._needed = FULL_BYTES
                return Recorded(event, ack.seq)
            except js_errors.APIError as error:
                if error.err_code not in _TAKEN:
                    raise _unwritable(error) from error
                winner = await self._read(subject, until - clock())
                if winner is not None:
                    return _same(winner, call, own=event.event_id)
            except (errors.Error, TimeoutError):
                # A server that could not write takes nothing more until it is restarted, when there is room.
                self._needed = ROOM_BYTES
                await self._check_room()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, min(_APPEND_SECONDS, until - clock()))):
                        await self._store.link.connected()
            await asyncio.sleep(_PAUSE_SECONDS)
        raise HearthNetError(
            "partition", "the event log did not answer in time; the same client_id may be sent again"
        )

    async def _check_room(self) -> None:
        """Raises `capacity_exceeded` where the disk has less room than an append needs now."""
        if self._home is None:
            return
        try:
            free = await asyncio.to_thread(self._home.free_bytes)
        except OSError:
            return
        if free < self._needed:
            raise HearthNetError(
                "capacity_exceeded",
                "the disk is full; make room, then send it again (the same client_id has no second effect)",
                details={"free_bytes": free, "needed_bytes": self._needed},
            )

    async def _read(self, subject: str, seconds: float) -> Recorded | None:
        from nats.js.errors import NotFoundError

        async with _answering(min(_ANSWER_SECONDS, seconds)):
            try:
                found: RawStreamMsg = await self._store.js.get_last_msg(self._stream, subject, direct=True)
            except NotFoundError:
                return None
        return _decode(found.data or b"", found.seq or 0)


@contextlib.asynccontextmanager
async def _answering(seconds: float = _ANSWER_SECONDS) -> AsyncIterator[None]:
    """What the store's client raises, as `partition`: nothing is known of what was asked.

    A question that the server took with it when it died has no answer; the next one is asked soon.
    """
    from nats import errors

    try:
        async with asyncio.timeout(seconds):
            yield
    except (errors.Error, TimeoutError) as error:
        raise HearthNetError(
            "partition", "the event log does not answer; try again with the same client_id"
        ) from error


def _allowed(call: Call[Any, Any]) -> float:
    """The seconds this call may take, so that its answer comes before the caller gives up."""
    left = call.remaining()
    return left - min(_SPARE_SECONDS, left / 4)


def _decode(data: bytes, sequence: int) -> Recorded:
    try:
        return Recorded(read_json(data, _EVENT), sequence)
    except HearthNetError as error:
        raise HearthNetError(
            "internal_error", f"event {sequence} of the log is malformed: {error.message}"
        ) from error


def _same(earlier: Recorded, call: Call[Any, Any], own: str = "") -> Recorded:
    if earlier.event.arguments_digest != call.arguments_digest:
        raise HearthNetError(
            "bad_request",
            f"client_id {earlier.event.client_id} was used for something else; make a new one",
            details={"path": "/input/client_id", "rule": "reused"},
        )
    return Recorded(earlier.event, earlier.lamport, repeated=earlier.event.event_id != own)


def _unwritable(error: Any) -> HearthNetError:
    if error.err_code in (10023, 10028, 10047, 10077):
        return HearthNetError("capacity_exceeded", "the event log has no room; free space on the disk")
    return HearthNetError("internal_error", f"the event log refuses the event: {error.description}")
