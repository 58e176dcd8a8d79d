"""Server-sent events and responses made of them (HTML Standard, 9.2).

A response lasts as long as its reader: when the client disconnects, the generator behind it is closed at
once, which cancels the work at the provider.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

HEARTBEAT_SECONDS: Final = 10.0
HEARTBEAT: Final = b": still here\n\n"
FIRST_SECONDS: Final = 5.0
"""The time that a response waits for its first piece, so that an early error has an HTTP status."""
MEDIA_TYPE: Final = "text/event-stream"
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_ENCODE: Final = msgspec.json.Encoder().encode
Value = TypeVar("Value")


class ClientGoneError(Exception):
    """Raised when the client has disconnected."""


class EventChunks(Protocol):
    """The source of a response's pieces: an async generator or similar."""

    async def __anext__(self) -> bytes: ...
    async def aclose(self) -> None: ...


class Primed:
    """A source whose first piece is requested in advance, so that an early error has a status.

    After the head of the response has been sent, an error becomes the last piece.
    """

    def __init__(self, source: EventChunks, failed: Callable[[Exception], bytes]) -> None:
        """Wrap `source`; `failed` returns the piece that reports an error."""
        self._source = source
        self._failed = failed
        self._over = False
        self._first: asyncio.Future[bytes] | None = None

    @classmethod
    async def of(cls, source: EventChunks, patience: float, failed: Callable[[Exception], bytes]) -> Primed:
        """Wait up to `patience` seconds for the first piece; raise an earlier error of `source`."""
        primed = cls(source, failed)
        primed._first = asyncio.ensure_future(source.__anext__())
        try:
            await asyncio.wait((primed._first,), timeout=patience)
            if primed._first.done():
                _raise_error_of(primed._first)
        except BaseException:
            await primed.aclose()
            raise
        return primed

    async def __anext__(self) -> bytes:
        if self._over:
            raise StopAsyncIteration
        try:
            return await self._next()
        except StopAsyncIteration:
            raise
        except Exception as error:
            self._over = True
            return self._failed(error)

    async def _next(self) -> bytes:
        first, self._first = self._first, None
        if first is None:
            return await self._source.__anext__()
        try:
            return await first
        finally:
            await end(first)

    async def aclose(self) -> None:
        """Close the source."""
        if self._first is not None:
            await end(self._first)
        await self._source.aclose()


def encode(event: str, data: Any, seq: int | None = None) -> bytes:
    """Return one event: its number as `id`, its name, and `data` as one line of JSON."""
    number = b"" if seq is None else b"id: %d\n" % seq
    return number + b"event: %s\ndata: %s\n\n" % (event.encode(), _ENCODE(data))


def encode_data(data: Any) -> bytes:
    """Return an event without a name, as in OpenAI's API."""
    return b"data: %s\n\n" % _ENCODE(data)


class EventStream(Response):
    """A response of the pieces of `source`, with a comment after each silent interval."""

    def __init__(self, source: EventChunks, *, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> None:
        super().__init__(headers=_HEADERS, media_type=MEDIA_TYPE)
        del self.headers["content-length"]
        self._source = source
        self._heartbeat_seconds = heartbeat_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all pieces; stop and close the source when the client disconnects."""
        start: Message = {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }
        with contextlib.suppress(ClientGoneError, OSError):
            await send(start)
            await while_there(receive, self._pump(send))
        await self._source.aclose()

    async def _pump(self, send: Send) -> None:
        """Send each piece, and a heartbeat after each interval without one."""

        async def put(piece: bytes, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": piece, "more_body": more})

        following: asyncio.Task[bytes] | None = None
        try:
            while True:
                following = following or asyncio.ensure_future(self._source.__anext__())
                await asyncio.wait((following,), timeout=self._heartbeat_seconds)
                if not following.done():
                    await put(HEARTBEAT)
                    continue
                try:
                    piece = following.result()
                except StopAsyncIteration:
                    break
                finally:
                    following = None
                await put(piece)
            await put(b"", more=False)
        finally:
            if following is not None:
                await end(following)
            await self._source.aclose()


async def streamed(
    receive: Receive, pieces: EventChunks, failed: Callable[[Exception], bytes]
) -> EventStream:
    """Return the response of `pieces`; raise an error that comes before the first one is waited for too long.

    `failed` returns the piece that reports a later one.

    Raises:
        ClientGoneError: The client disconnected first.
    """
    return EventStream(await while_there(receive, Primed.of(pieces, FIRST_SECONDS, failed)))


def _raise_error_of(first: asyncio.Future[bytes]) -> None:
    """Raise the error of the first piece; an empty source is no error."""
    error = first.exception()
    if error is not None and not isinstance(error, StopAsyncIteration):
        raise error


async def while_there(receive: Receive, work: Awaitable[Value]) -> Value:
    """Return the result of `work`; cancel it when the client disconnects.

    The request's body must have been read before, so that the next message is the disconnection.

    Raises:
        ClientGoneError: The client disconnected first.
    """
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_until_disconnect(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGoneError
        return working.result()
    finally:
        await end(watching)
        await end(working)


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def end(task: asyncio.Future[Any]) -> None:
    """Cancel `task` if it still runs, and wait until it has ended."""
    if not task.done():
        task.cancel()
        await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()
