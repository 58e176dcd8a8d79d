"""Requests to the blob store that outlast a restart of its server (docs/decisions/0080)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from hearthnet.bus.blobs.metadata import STREAM
from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.core.tasks import heeding_cancellation
from hearthnet.nats.jetstream_client import StoreLink

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from nats.js.api import PubAck, RawStreamMsg
    from nats.js.errors import APIError

ATTEMPT_SECONDS: Final = 5.0
PATIENCE_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.1
_UNAVAILABLE: Final = 503
_MOVED: Final = 10071
_FULL: Final = frozenset({10023, 10028, 10047, 10077})
_NO_SPACE: Final = "no space left on device"
"""The server's text, under code 500, for a failed write."""
_ORDER: Final = "Nats-Expected-Last-Subject-Sequence"
_ROLLUP: Final = {"Nats-Rollup": "sub"}
_Answer = TypeVar("_Answer")


def _ample() -> None:
    """Check nothing; the default of `room`."""


class SequenceChanged(Exception):
    """Raised when nothing was written: the subject's last message is not the expected one."""


class StoredChunk(NamedTuple):
    """A message of the stream and its place in it."""

    data: bytes
    sequence: int
    time_ms: int
    """Time of writing, in ms since 1970."""


class BlobLink:
    """The stream of the bucket; requests wait up to `patience` seconds for its server.

    Raises:
        HearthNetError: In all methods, `partition` after that time; `capacity_exceeded` if the disk is full.
    """

    def __init__(self, js: JetStreamContext, link: StoreLink, patience: float = PATIENCE_SECONDS) -> None:
        self._js = js
        self._link = link
        self._patience = patience
        self._attempts: set[asyncio.Timeout] = set()
        self.room: Callable[[], None] = _ample
        """Check that raises `capacity_exceeded` for a full disk, whose server does not answer."""
        link.on_lost(self._on_lost)

    async def last(self, subject: str) -> StoredChunk | None:
        """Return the newest message under `subject`."""
        return await self._read_message(lambda: self._js.get_last_msg(STREAM, subject, direct=True))

    async def at(self, sequence: int) -> StoredChunk | None:
        """Return the message in that place."""
        return await self._read_message(lambda: self._js.get_msg(STREAM, sequence, direct=True))

    async def after(self, sequence: int, subject: str) -> StoredChunk | None:
        """Return the first message under `subject` behind that place."""
        return await self._read_message(
            lambda: self._js.get_msg(STREAM, sequence + 1, subject, direct=True, next=True)
        )

    async def append(
        self, subject: str, data: bytes, after: int, *, alone: bool = False, unchecked: bool = False
    ) -> int:
        """Write a message whose predecessor under `subject` is in place `after` (0: none).

        With `alone` it replaces that message. A repetition after a lost answer finds the message already
        written. With `unchecked` the first attempt does not make the server check the predecessor, and the
        caller verifies at the end that nothing came in between.

        Raises:
            Moved: Another writer was faster.
        """
        checked, attempt = {_ORDER: str(after)} | (_ROLLUP if alone else {}), 0

        async def publish() -> PubAck:
            nonlocal attempt
            attempt += 1
            # A server that reads a block for a check keeps all of it in memory for ten seconds: 1 GB at
            # 40 MB/s (docs/decisions/0155). A repetition is always checked.
            headers = None if unchecked and attempt == 1 else dict(checked)
            return await self._js.publish(
                subject, data, timeout=ATTEMPT_SECONDS, stream=STREAM, headers=headers
            )

        async def publish_beside() -> PubAck:
            return await self._js.publish(subject, data, timeout=ATTEMPT_SECONDS, stream=STREAM)

        try:
            written = await self._until_answered(publish, self.room)
        except SequenceChanged:
            found = await self.last(subject)
            if found is None or found.sequence <= after or found.data != data:
                raise
            return found.sequence
        if alone and await self.last(subject) is None:
            # A message there is damaged on the disk: the server cannot remove it, and has removed this one.
            return (await self._until_answered(publish_beside, self.room)).seq
        return written.seq

    async def purge(self, subject: str, before: int = 0) -> None:
        """Delete the messages under `subject`, with `before` only those in front of that place."""
        await self._until_answered(lambda: self._js.purge_stream(STREAM, seq=before or None, subject=subject))

    async def subjects(self, under: str) -> dict[str, int]:
        """Return the number of messages by subject."""
        found = await self._until_answered(lambda: self._js.stream_info(STREAM, subjects_filter=under))
        return found.state.subjects or {}

    async def used_bytes(self) -> int:
        """Return the size of the bucket."""
        return (await self._until_answered(lambda: self._js.stream_info(STREAM))).state.bytes

    async def _read_message(self, ask: Callable[[], Awaitable[RawStreamMsg]]) -> StoredChunk | None:
        from nats.js.errors import NotFoundError

        try:
            message = await self._until_answered(ask)
        except NotFoundError:
            return None
        written = 0 if message.time is None else int(message.time.timestamp() * 1000)
        return StoredChunk(message.data or b"", message.seq or 0, written)

    async def _until_answered(
        self, ask: Callable[[], Awaitable[_Answer]], check: Callable[[], None] = _ample
    ) -> _Answer:
        """Repeat the request until it is answered; `check` may raise the cause of the silence."""
        from nats import errors
        from nats.js.errors import APIError

        clock = asyncio.get_running_loop().time
        end = clock() + self._patience
        while True:
            try:
                return await self._run_attempt(ask, end)
            except APIError as error:
                if error.code != _UNAVAILABLE:
                    _refuse(error)
                    raise
                reason: Exception = error
            except (errors.Error, TimeoutError) as error:
                reason = error
            check()
            if clock() >= end:
                raise Unavailable(
                    "the blob store does not answer; try again", rule="store_silent"
                ) from reason
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _run_attempt(self, ask: Callable[[], Awaitable[_Answer]], end: float) -> _Answer:
        async with asyncio.timeout_at(end):
            await self._link.connected()
        async with asyncio.timeout(ATTEMPT_SECONDS) as attempt:
            self._attempts.add(attempt)
            try:
                with heeding_cancellation():
                    return await ask()
            finally:
                self._attempts.discard(attempt)

    def _on_lost(self) -> None:
        """Repeat pending requests as soon as the connection is restored."""
        for attempt in self._attempts:
            attempt.reschedule(0)


def is_disk_full(error: APIError) -> bool:
    """Return whether the server refuses a message for lack of room."""
    return error.err_code in _FULL or _NO_SPACE in str(error.description)


def _refuse(error: APIError) -> None:
    """Translate a refusal of the server, if it has a translation."""
    if error.err_code == _MOVED:
        raise SequenceChanged from error
    if is_disk_full(error):
        raise HearthNetError(
            "capacity_exceeded", "the disk has no room for content; make room, then try again"
        ) from error
