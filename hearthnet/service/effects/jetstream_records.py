"""Access to a node's records in JetStream: time limits, disk space, reading in batches.

See: docs/protocol/subjects.md#stored-subjects.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hearthnet.bus.blobs.stream import is_disk_full
from hearthnet.bus.store import Store
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.core.home import FULL_BYTES, ROOM_BYTES, Home
from hearthnet.core.tasks import heeding_cancellation

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.js.api import PubAck

WRITE_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 3.0
BEGUN_SHARE: Final = 0.25
"""Share of the free space for a write that suffices for recording an outcome."""
_WRONG_SEQUENCE: Final = frozenset({10071, 10077, 10164})
"""The server's codes for a place that is not as expected."""
_AMPLE: Final = 16
_LOOK_SECONDS: Final = 1.0
_BATCH: Final = 2000
_BATCH_BYTES: Final = 16 * 1024 * 1024
"""More than one message can have, so that every request returns one."""
_SEQUENCE: Final = -4
"""Index of the stream sequence in the acknowledgement subject of a consumer's message."""
_NO_SUCH_MESSAGE: Final = 10043
_DELETE_FAILED: Final = 10057
_TOO_LARGE_FOR_STREAM: Final = 10054
"""The server's code while the audit log is closed; no other stream has such a limit (supervisor/nats)."""
_BROKEN_BATCH: Final = frozenset({10176, 10210})
"""The server's codes for a batch of which it lost the beginning, and for one too many at once."""
MAX_BATCH: Final = 500
"""Maximum of messages that are appended together; the server takes 1,000."""
_FEW: Final = 8
_IDLE_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.1


class Message(NamedTuple):
    """A stored message, its place in its stream, and its subject."""

    data: bytes
    sequence: int
    subject: str


class WrongSequence(Exception):
    """Raised when nothing was written: the place is taken.

    `is_unsure`: perhaps by an earlier attempt, which the server did not answer.
    """

    is_unsure = False


class StoreTimeout(Exception):
    """Raised when the server did not answer; the message is perhaps written."""


class StreamClosed(StoreTimeout):
    """Raised when the stream takes nothing for a moment; nothing was written."""


class DiskGuard:
    """A check for free space on the disk of the node in `home`; always passes without a home."""

    def __init__(self, home: Home | None) -> None:
        self._home = home
        self._needed = FULL_BYTES
        self._ample_until = 0.0

    async def check(self, share: float = 1.0) -> None:
        """Check that the disk has the room that a write requires now.

        `share` of it suffices for what must still be written once something was begun. If far more is free,
        the disk is not checked again for a second.

        Raises:
            HearthNetError: `capacity_exceeded` if it has not.
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
        """Record that the server has written something."""
        self._needed = FULL_BYTES

    def unwritten(self) -> None:
        """Record that the server did not answer.

        A server that could not write accepts nothing more until its restart, which requires more room.
        """
        self._needed = ROOM_BYTES
        self._ample_until = 0.0


@contextlib.asynccontextmanager
async def answering(what: str, seconds: float = ANSWER_SECONDS) -> AsyncIterator[None]:
    """Translate errors of the store's client; the result of the request is then unknown.

    A request that the server received before it died is never answered, hence the limit in seconds.

    Raises:
        HearthNetError: `partition` if the store does not answer.
    """
    from nats import errors

    try:
        with heeding_cancellation():
            async with asyncio.timeout(seconds):
                yield
    except (errors.Error, TimeoutError) as error:
        raise Unavailable(
            f"{what} does not answer; try again with the same client_id", rule="store_silent"
        ) from error


async def write(
    store: Store,
    stream: str,
    subject: str,
    data: bytes,
    *,
    expected: dict[str, str],
    seconds: float,
    ahead: Sequence[tuple[str, bytes]] = (),
) -> PubAck:
    """Append `data` if the stream is as `expected` (headers).

    The messages `ahead`, with their subjects, are appended directly before it under the same condition, all
    or none: the server syncs its disk once for all of them. The stream permits that (`allow_atomic`).

    Raises:
        WrongSequence: It is not.
        StoreTimeout: The result is unknown.
        HearthNetError: The server refuses the message.
    """
    from nats import errors
    from nats.js import errors as js_errors

    try:
        with heeding_cancellation():
            headers = await _begun(store, ahead, expected) if ahead else expected
            return await store.js.publish(
                subject, data, timeout=min(WRITE_SECONDS, seconds), stream=stream, headers=headers
            )
    except js_errors.APIError as error:
        if error.err_code in _WRONG_SEQUENCE:
            raise WrongSequence from error
        if error.err_code == _TOO_LARGE_FOR_STREAM:
            raise StreamClosed from error
        if error.err_code in _BROKEN_BATCH:
            raise StoreTimeout from error
        raise unwritable(error) from error
    except (errors.Error, TimeoutError) as error:
        raise StoreTimeout from error


async def _begun(
    store: Store, ahead: Sequence[tuple[str, bytes]], expected: dict[str, str]
) -> dict[str, str]:
    """Publish the first messages of a batch, and return the headers of the last one, which commits it."""
    batch = {**expected, "Nats-Batch-Id": ids.new_ulid()}
    for number, (subject, data) in enumerate(ahead, 1):
        headers = {**batch, "Nats-Batch-Sequence": str(number)}
        await store.link.client.publish(subject, data, headers=headers)
    return {**batch, "Nats-Batch-Sequence": str(len(ahead) + 1), "Nats-Batch-Commit": "1"}


async def increment(store: Store, subject: str, by: int) -> int:
    """Add to a counter and return its value, which no other call receives.

    Raises:
        StoreTimeout: The result is unknown.
        HearthNetError: The server refuses the message.
    """
    from nats import errors
    from nats.js import errors as js_errors

    try:
        with heeding_cancellation():
            ack = await store.js.publish(subject, timeout=WRITE_SECONDS, headers={"Nats-Incr": f"{by:+d}"})
        return int(ack.val or "")
    except js_errors.APIError as error:
        raise unwritable(error) from error
    except (errors.Error, TimeoutError, ValueError) as error:
        raise StoreTimeout from error


async def write_until(
    store: Store,
    stream: str,
    subject: str,
    data: bytes,
    *,
    expected: dict[str, str],
    until: float,
    room: DiskGuard,
    share: float = 1.0,
    ahead: Sequence[tuple[str, bytes]] = (),
    what: str,
) -> int:
    """Append as `write`, repeated until the loop time `until`; return the place of the last message.

    The caller has checked `room`. It is checked again, for `share`, when the server has not answered.

    Raises:
        WrongSequence: The stream is not as expected.
        HearthNetError: `capacity_exceeded` if the disk is full; `partition` if the result is unknown; as
            `write`.
    """
    clock, unsure = asyncio.get_running_loop().time, False
    while (left := until - clock()) > 0:
        try:
            ack = await write(store, stream, subject, data, expected=expected, seconds=left, ahead=ahead)
        except WrongSequence as taken:
            taken.is_unsure = unsure
            raise
        except StreamClosed:
            await asyncio.sleep(_PAUSE_SECONDS)
        except StoreTimeout:
            unsure = True
            room.unwritten()
            await room.check(share)
            await reconnected(store, until - clock())
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            room.written()
            return ack.seq
    raise Unavailable(
        f"{what} did not answer in time; try again with the same client_id", rule="store_silent"
    )


def unwritable(error: Any) -> HearthNetError:
    """Translate the server's refusal of a message."""
    if is_disk_full(error):
        return HearthNetError("capacity_exceeded", "the event log has no room; free space on the disk")
    return HearthNetError("internal_error", f"the event log refuses the event: {error.description}")


async def reconnected(store: Store, seconds: float) -> None:
    """Wait for the connection, for at most `seconds`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, min(WRITE_SECONDS, seconds))):
            await store.link.connected()


async def last(store: Store, stream: str, subject: str, what: str, seconds: float) -> Message | None:
    """Return the newest message under `subject`, None if there is none.

    Raises:
        HearthNetError: `partition` without an answer.
    """
    from nats.js.errors import NotFoundError

    async with answering(what, min(ANSWER_SECONDS, seconds)):
        try:
            found = await store.js.get_last_msg(stream, subject, direct=True)
        except NotFoundError:
            return None
    return Message(found.data or b"", found.seq or 0, subject)


async def at(store: Store, stream: str, sequence: int, what: str) -> Message | None:
    """Return the message with that number, None if there is none.

    Raises:
        HearthNetError: `partition` without an answer.
    """
    from nats.js.errors import NotFoundError

    async with answering(what):
        try:
            found = await store.js.get_msg(stream, sequence, direct=True)
        except NotFoundError:
            return None
    return Message(found.data or b"", sequence, found.subject or "")


async def erase(store: Store, stream: str, sequence: int, what: str) -> None:
    """Make the server overwrite and delete a message, if it is still there.

    Raises:
        HearthNetError: `partition` without an answer.
    """
    from nats.js import errors as js_errors

    async with answering(what):
        try:
            await store.js.delete_msg(stream, sequence)
        except js_errors.APIError as error:
            if not _is_gone(error):
                raise unwritable(error) from error


def _is_gone(error: Any) -> bool:
    """Whether a deletion failed since the message is gone; its block may be gone with it."""
    code: int = error.err_code
    return code == _NO_SUCH_MESSAGE or (code == _DELETE_FAILED and error.description == "no message found")


async def read(
    store: Store, stream: str, subject: str, after: int, upto: int, what: str
) -> AsyncIterator[list[Message]]:
    """Yield the messages after place `after`, up to `upto`, in order and in batches.

    Erased messages are left out.

    Raises:
        HearthNetError: `partition` without an answer.
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
    """Return a few messages, without a consumer on the server."""
    from nats.js.errors import NotFoundError

    found = []
    for sequence in range(after + 1, upto + 1):
        with contextlib.suppress(NotFoundError):
            message = await store.js.get_msg(stream, sequence, direct=True)
            found.append(Message(message.data or b"", message.seq or 0, message.subject or ""))
    return found


async def _together(store: Store, stream: str, subject: str, after: int, upto: int) -> list[Message]:
    """Return up to `_BATCH` messages through a temporary consumer; none if there are none."""
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
    collector = _Collector(min(_BATCH, upto - after), upto)
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox, cb=collector.take)
    try:
        wanted = {"batch": collector.most, "max_bytes": _BATCH_BYTES, "no_wait": True}
        ask = f"{api.DEFAULT_PREFIX}.CONSUMER.MSG.NEXT.{stream}.{reader.name}"
        await client.publish(ask, json.dumps(wanted).encode(), reply=inbox)
        await collector.all.wait()
    finally:
        # After a lost connection the server removes the consumer itself.
        with contextlib.suppress(errors.Error, TimeoutError):
            await subscription.unsubscribe()
            await js.delete_consumer(stream, reader.name)
    return collector.messages


class _Collector:
    """The messages of one request: `most` of them, those up to `upto`, or all there are."""

    def __init__(self, most: int, upto: int) -> None:
        self.most = most
        self.messages: list[Message] = []
        self.all = asyncio.Event()
        self._upto = upto

    async def take(self, message: Msg) -> None:
        """Add a message, or end at the server's notice, without a sequence, that no more follow."""
        if not message.reply:
            self.all.set()
            return
        place = int(message.reply.split(".")[_SEQUENCE])
        if place <= self._upto:
            self.messages.append(Message(message.data, place, message.subject))
        if place >= self._upto or len(self.messages) == self.most:
            self.all.set()
