"""Access to a node's records in JetStream: time limits, disk space, batches (direct_reads.py reads many).

See: docs/protocol/subjects.md#stored-subjects.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from hearthnet.bus.blobs.stream import is_disk_full
from hearthnet.bus.store import Store
from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.core.home import FULL_BYTES, ROOM_BYTES, Home
from hearthnet.core.tasks import heeding_cancellation

if TYPE_CHECKING:
    from nats.js.api import PubAck

WRITE_SECONDS: Final = 2.0
_BATCH_SECONDS: Final = 4.0
"""As `WRITE_SECONDS`, with the time in which a batch of 2 MiB is sent."""
ANSWER_SECONDS: Final = 3.0
BEGUN_SHARE: Final = 0.25
"""Share of the free space for a write that suffices for recording an outcome."""
_WRONG_SEQUENCE: Final = frozenset({10071, 10077, 10164})
"""The server's codes for a place that is not as expected."""
_AMPLE: Final = 16
_LOOK_SECONDS: Final = 1.0
_NO_SUCH_MESSAGE: Final = 10043
_DELETE_FAILED: Final = 10057
_TOO_LARGE_FOR_STREAM: Final = 10054
"""The server's code while the audit log is closed; no other stream has such a limit (supervisor/nats)."""
_BROKEN_BATCH: Final = frozenset({10176, 10210})
"""The server's codes for a batch of which it lost the beginning, and for one too many at once."""
MAX_BATCH: Final = 500
"""Maximum of messages that are appended together; the server takes 1,000."""
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
            if ahead:
                return await _together(
                    store, [*ahead, (subject, data)], expected, min(_BATCH_SECONDS, seconds)
                )
            return await store.js.publish(
                subject, data, timeout=min(WRITE_SECONDS, seconds), stream=stream, headers=expected
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


async def _together(
    store: Store, messages: Sequence[tuple[str, bytes]], expected: dict[str, str], seconds: float
) -> PubAck:
    """Append `messages` as one atomic batch, and return the acknowledgement of the last one."""
    from nats.js import api
    from nats.js import errors as js_errors

    try:
        async with asyncio.timeout(seconds):
            batches = await store.link.batches()
            answer = msgspec.json.decode(await batches.append(messages, expected), type=dict[str, Any])
    except HearthNetError as error:
        raise StoreTimeout from error
    if refused := answer.get("error"):
        js_errors.APIError.from_error(refused)
    return api.PubAck.from_response(answer)


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
