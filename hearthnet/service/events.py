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
from hearthnet.errors import HearthNetError
from hearthnet.service.call import Call
from hearthnet.times import now_ms, rfc3339
from hearthnet.trust.approval import Approval, check_time

if TYPE_CHECKING:
    from nats.js.api import RawStreamMsg

_TAKEN: Final = frozenset({10071, 10077})
_APPEND_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.2
_BATCH: Final = 500
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

    def __init__(self, store: Store, stream: str, prefix: str, community: str) -> None:
        self._store = store
        self._stream = stream
        self._prefix = prefix
        self._community = community

    async def append(self, call: Call[Any, Any], event_type: str, data: dict[str, Any]) -> Recorded:
        """Makes the effect of `call` happen, at most once ever for its author and client id.

        Raises `bad_request` where that client id was used for other arguments, `expired` for an approval
        that is too old and was
        never used, `partition` where the log cannot be reached inside the call's deadline.
        """
        subject = self._subject(call)
        if call.evidence is None:
            raise HearthNetError("invalid_signature", "an event takes its author's signed frame")
        if (earlier := await self._read(subject)) is not None:
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
        return await self._read(self._subject(call)) is not None

    async def read(self, after: int) -> AsyncIterator[list[Recorded]]:
        """The events after place `after`, in order and in batches, up to what is there when it is asked."""
        from nats.js import api

        js = self._store.js
        last = (await js.stream_info(self._stream)).state.last_seq
        if after >= last:
            return
        reader = await js.pull_subscribe(
            f"{self._prefix}.>",
            stream=self._stream,
            config=api.ConsumerConfig(
                deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=after + 1,
                ack_policy=api.AckPolicy.NONE,
                inactive_threshold=_IDLE_SECONDS,
                mem_storage=True,
            ),
        )
        try:
            while after < last:
                messages = await reader.fetch(min(_BATCH, last - after), timeout=_APPEND_SECONDS)
                batch = [_decode(message.data, message.metadata.sequence.stream) for message in messages]
                after = batch[-1].lamport
                yield batch
        finally:
            await reader.unsubscribe()

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
        while call.remaining() > 0:
            try:
                ack = await self._store.js.publish(
                    subject, data, timeout=_APPEND_SECONDS, stream=self._stream, headers=headers
                )
                return Recorded(event, ack.seq)
            except js_errors.APIError as error:
                if error.err_code not in _TAKEN:
                    raise _unwritable(error) from error
                winner = await self._read(subject)
                if winner is not None:
                    return _same(winner, call, own=event.event_id)
            except (errors.Error, TimeoutError):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(_APPEND_SECONDS, call.remaining())):
                        await self._store.link.connected()
            await asyncio.sleep(_PAUSE_SECONDS)
        raise HearthNetError(
            "partition", "the event log did not answer in time; the same client_id may be sent again"
        )

    async def _read(self, subject: str) -> Recorded | None:
        from nats import errors
        from nats.js.errors import NotFoundError

        try:
            found: RawStreamMsg = await self._store.js.get_last_msg(self._stream, subject, direct=True)
        except NotFoundError:
            return None
        except (errors.Error, TimeoutError) as error:
            raise HearthNetError(
                "partition", "the event log does not answer; try again with the same client_id"
            ) from error
        return _decode(found.data or b"", found.seq or 0)


def _decode(data: bytes, sequence: int) -> Recorded:
    try:
        return Recorded(msgspec.json.decode(data, type=Event), sequence)
    except msgspec.DecodeError as error:
        raise HearthNetError(
            "internal_error", f"event {sequence} of the log is malformed: {error}"
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
