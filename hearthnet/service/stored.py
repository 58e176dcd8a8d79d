"""What a node's records in JetStream have in common: how long an answer may take, room on the disk, and
reading a stream in batches.

See: docs/protocol/subjects.md#stored-subjects.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hearthnet.bus.blob_link import NO_SPACE
from hearthnet.bus.store import Store
from hearthnet.errors import HearthNetError
from hearthnet.home import FULL_BYTES, ROOM_BYTES, Home
from hearthnet.service.tasks import heeding_cancellation

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.js.api import PubAck

WRITE_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 3.0
BEGUN_SHARE: Final = 0.25
"""What is kept back of the disk for the outcome of what was begun."""
TAKEN: Final = frozenset({10071, 10077})
"""The server's codes for: something else stands where this was to be."""
_AMPLE: Final = 16
_LOOK_SECONDS: Final = 1.0
_FULL: Final = frozenset({10023, 10028, 10047, 10077})
_BATCH: Final = 2000
_BATCH_BYTES: Final = 16 * 1024 * 1024
"""More than one message may have, so that every question brings one."""
_SEQUENCE: Final = -4
"""Where in the subject on which a reader's message could be acknowledged its place in the stream stands."""
_NO_SUCH_MESSAGE: Final = 10043
_DENIED: Final = "not permitted"
_FEW: Final = 8
_IDLE_SECONDS: Final = 30.0


class Message(NamedTuple):
    """A stored message, its place in its stream, and its subject."""

    data: bytes
    sequence: int
    subject: str


class Taken(Exception):
    """Not written: something else stands there, or this itself where an earlier answer was lost."""


class Unanswered(Exception):
    """Perhaps written: the server did not answer."""


class Room:
    """Whether the disk of the node in `home` takes another record; where no home is known, it always does."""

    def __init__(self, home: Home | None) -> None:
        self._home = home
        self._needed = FULL_BYTES
        self._ample_until = 0.0

    async def check(self, share: float = 1.0) -> None:
        """Raises `capacity_exceeded` where less is free than a write needs now.

        `share` of it is enough for what must still be written once something was begun. Where there is far
        more, it is not looked again for a second.
        """
        clock = asyncio.get_running_loop().time
        if self._home is None or clock() < self._ample_until:
            return
        try:
            free = await asyncio.to_thread(self._home.free_bytes)
        except OSError:
            return
        if free < self._needed * share:
            raise HearthNetError(
                "capacity_exceeded",
                "the disk is full; make room, then send it again",
                details={"free_bytes": free, "needed_bytes": self._needed},
            )
        if free > _AMPLE * self._needed:
            self._ample_until = clock() + _LOOK_SECONDS

    def written(self) -> None:
        """The server has written something."""
        self._needed = FULL_BYTES

    def unwritten(self) -> None:
        """The server did not answer. One that could not write takes nothing more until it is restarted, which
        takes more room.
        """
        self._needed = ROOM_BYTES
        self._ample_until = 0.0


@contextlib.asynccontextmanager
async def answering(what: str, seconds: float = ANSWER_SECONDS) -> AsyncIterator[None]:
    """What the store's client raises, as `partition`: nothing is known of what was asked.

    A question that the server took with it when it died has no answer; the next one is asked soon.
    """
    from nats import errors

    try:
        with heeding_cancellation():
            async with asyncio.timeout(seconds):
                yield
    except (errors.Error, TimeoutError) as error:
        raise HearthNetError(
            "partition", f"{what} does not answer; try again with the same client_id"
        ) from error


async def write(
    store: Store, stream: str, subject: str, data: bytes, *, expected: dict[str, str], seconds: float
) -> PubAck:
    """Appends `data` where the stream is as `expected` (headers). Raises `Taken` where it is not,
    `Unanswered` where that is not known, and `HearthNetError` where the server refuses it.
    """
    from nats import errors
    from nats.js import errors as js_errors

    try:
        with heeding_cancellation():
            return await store.js.publish(
                subject, data, timeout=min(WRITE_SECONDS, seconds), stream=stream, headers=expected
            )
    except js_errors.APIError as error:
        if error.err_code in TAKEN:
            raise Taken from error
        raise unwritable(error) from error
    except (errors.Error, TimeoutError) as error:
        raise Unanswered from error


def unwritable(error: Any) -> HearthNetError:
    """What the server's refusal of a record means."""
    if error.err_code in _FULL or NO_SPACE in str(error.description):
        return HearthNetError("capacity_exceeded", "the event log has no room; free space on the disk")
    return HearthNetError("internal_error", f"the event log refuses the event: {error.description}")


async def reconnected(store: Store, seconds: float) -> None:
    """Waits for the connection, for at most `seconds`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, min(WRITE_SECONDS, seconds))):
            await store.link.connected()


async def last(store: Store, stream: str, subject: str, what: str, seconds: float) -> Message | None:
    """The newest message under `subject`, None where there is none; `partition` without an answer."""
    from nats.js.errors import NotFoundError

    async with answering(what, min(ANSWER_SECONDS, seconds)):
        try:
            found = await store.js.get_last_msg(stream, subject, direct=True)
        except NotFoundError:
            return None
    return Message(found.data or b"", found.seq or 0, subject)


async def at(store: Store, stream: str, sequence: int, what: str) -> Message | None:
    """The message with that number, None where there is none; `partition` without an answer."""
    from nats.js.errors import NotFoundError

    async with answering(what):
        try:
            found = await store.js.get_msg(stream, sequence, direct=True)
        except NotFoundError:
            return None
    return Message(found.data or b"", sequence, found.subject or "")


async def erase(store: Store, stream: str, sequence: int, what: str) -> bool:
    """Has the server overwrite a message and let go of it; one that is gone already is well.

    False where the stream denies it; `partition` without an answer.
    """
    from nats.js import errors as js_errors

    async with answering(what):
        try:
            await store.js.delete_msg(stream, sequence)
        except js_errors.APIError as error:
            if error.err_code != _NO_SUCH_MESSAGE and _DENIED not in str(error.description):
                raise unwritable(error) from error
            return error.err_code == _NO_SUCH_MESSAGE
    return True


async def read(
    store: Store, stream: str, subject: str, after: int, upto: int, what: str
) -> AsyncIterator[list[Message]]:
    """The messages after place `after`, up to `upto`, in order and in batches, those that were erased left
    out; `partition` without an answer.
    """
    while after < upto:
        few = upto - after <= _FEW
        async with answering(what):
            if few:
                batch = await _singly(store, stream, after, upto)
            else:
                batch = await _together(store, stream, subject, after, upto)
        if batch:
            yield batch
        after = upto if few or not batch else batch[-1].sequence


async def _singly(store: Store, stream: str, after: int, upto: int) -> list[Message]:
    """A few messages, without a reader that the server would have to remember."""
    from nats.js.errors import NotFoundError

    found = []
    for sequence in range(after + 1, upto + 1):
        with contextlib.suppress(NotFoundError):
            message = await store.js.get_msg(stream, sequence, direct=True)
            found.append(Message(message.data or b"", message.seq or 0, message.subject or ""))
    return found


async def _together(store: Store, stream: str, subject: str, after: int, upto: int) -> list[Message]:
    """Up to `_BATCH` messages, through a reader of the server's that is taken back; none where there is
    none up to `upto`.
    """
    from nats import errors
    from nats.js import api

    config = api.ConsumerConfig(
        deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
        opt_start_seq=after + 1,
        ack_policy=api.AckPolicy.NONE,
        inactive_threshold=_IDLE_SECONDS,
        filter_subject=subject,
        mem_storage=True,
    )
    js, client = store.js, store.link.client
    reader = await js.add_consumer(stream, config)
    got = _Got(min(_BATCH, upto - after), upto)
    inbox = client.new_inbox()
    heard = await client.subscribe(inbox, cb=got.take)
    try:
        wanted = {"batch": got.most, "max_bytes": _BATCH_BYTES, "no_wait": True}
        ask = f"{api.DEFAULT_PREFIX}.CONSUMER.MSG.NEXT.{stream}.{reader.name}"
        await client.publish(ask, json.dumps(wanted).encode(), reply=inbox)
        await got.all.wait()
    finally:
        # Where the connection is gone, the server forgets the reader by itself.
        with contextlib.suppress(errors.Error, TimeoutError):
            await heard.unsubscribe()
            await js.delete_consumer(stream, reader.name)
    return got.messages


class _Got:
    """What one question for messages brings: `most` of them, those up to `upto`, or all there are."""

    def __init__(self, most: int, upto: int) -> None:
        self.most = most
        self.messages: list[Message] = []
        self.all = asyncio.Event()
        self._upto = upto

    async def take(self, message: Msg) -> None:
        """A message; or the server's word, without a place of its own, that it sends no more."""
        if not message.reply:
            self.all.set()
            return
        place = int(message.reply.split(".")[_SEQUENCE])
        if place <= self._upto:
            self.messages.append(Message(message.data, place, message.subject))
        if place >= self._upto or len(self.messages) == self.most:
            self.all.set()
