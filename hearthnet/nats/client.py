"""The bus connection of one process, which reconnects with its subscriptions.

JetStream has its own (nats/jetstream_client.py).

See: docs/protocol/subjects.md#accounts, docs/decisions/0060.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.nats.connection import ConnectionRefused, NatsConnection
from hearthnet.trust.keys import Login

_log = logging.getLogger(__name__)
CONNECT_SECONDS: Final = 10
"""The server is on this machine: where it is not there it refuses at once, and is busy otherwise."""
RECONNECT_SECONDS: Final = 1.0
"""Longest pause between two attempts to reconnect; the first ones follow at once."""
SETTLING_SECONDS: Final = 3.0
"""Time after a reconnection in which others may still be reconnecting: each tries once a second."""
MOST_WAITING: Final = 8 * 1024 * 1024
"""Maximum of bytes kept for the server while it is away."""
_FIRST_PAUSE: Final = 0.05
_AGAIN: Final = 3
_REFUSALS: Final = 2
_FAREWELL_SECONDS: Final = 1.0
_PORT: Final = 4222
Handler = Callable[[str, bytes, bool], None]
"""Called with a subject, the data, and True if the server reports no subscribers (503). Must not block."""
RequestHandler = Callable[[str, str, bytes], None]
"""Called with a subject, the subject for the answer (empty for none) and the data. Must not block."""


class NatsClient:
    """A connection that reconnects automatically, with callbacks for loss and reconnection."""

    def __init__(self, url: str, login: Login, name: str, inbox: str = "_INBOX") -> None:
        self._url = url
        parts = urlsplit(url)
        self._address = parts.hostname or "", parts.port or _PORT
        self._login = login
        self._name = name
        self._inbox = inbox
        self._connection: NatsConnection | None = None
        self._subjects: list[str] = []
        """The subscribed subjects, empty where ended; the number of a subscription is its index."""
        self._handlers: dict[int, Handler] = {}
        self._servers: dict[int, RequestHandler] = {}
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._reconnecting: asyncio.Task[None] | None = None
        self.max_payload = 0
        """The largest message that the server accepts, in bytes."""
        self._connected = asyncio.Event()
        self._closed = asyncio.Event()
        self._restored_at = -SETTLING_SECONDS
        self._lost_callbacks: list[Callable[[], None]] = []
        self._restored_callbacks: list[Callable[[], Awaitable[None]]] = []
        self._requests: dict[str, asyncio.Future[bytes]] = {}
        self._request_count = 0
        self._at_loop_end: list[Callable[[], None]] = []

    @staticmethod
    async def connect(url: str, login: Login, name: str, *, inbox: str = "_INBOX") -> NatsClient:
        """Connect to `url`. Raises as `open`."""
        link = NatsClient(url, login, name, inbox)
        await link.open()
        return link

    async def open(self) -> None:
        """Make the first connection.

        A server that reloads its configuration closes connections that are being made, or refuses their
        logins for a moment: these are made again.

        Raises:
            HearthNetError: `partition` with the address if no server answers; `unauthorized` if the login is
                refused.
        """
        tries = {ConnectionResetError: _AGAIN, ConnectionRefused: _REFUSALS - 1}
        while self._connection is None:
            try:
                self._use(await self._open())
            except (OSError, TimeoutError, ConnectionRefused) as error:
                left = tries.get(type(error), 0)
                if not left:
                    raise connect_error(self._url, error) from error
                tries[type(error)] = left - 1
                await asyncio.sleep(_FIRST_PAUSE)

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever the connection ends."""
        self._lost_callbacks.append(callback)

    def on_restored(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Call `callback` whenever the connection is restored, with its subscriptions."""
        self._restored_callbacks.append(callback)

    @property
    def is_connected(self) -> bool:
        """True if there is a connection now."""
        return self._connection is not None

    @property
    def is_settling(self) -> bool:
        """True if the connection was restored recently, so that others may still be reconnecting."""
        return asyncio.get_running_loop().time() - self._restored_at < SETTLING_SECONDS

    async def connected(self) -> None:
        """Wait for the connection.

        Raises:
            HearthNetError: `partition` if it was closed for good.
        """
        if not self._connected.is_set():
            await self._connected.wait()
        if self._closed.is_set():
            raise connection_lost("the connection to the server was closed")

    async def closed(self) -> None:
        """Wait until the connection is over for good: closed here, or the login is refused."""
        await self._closed.wait()

    @property
    def is_congested(self) -> bool:
        """True if the server reads more slowly than this process sends; call `drain` then."""
        connection = self._connection
        return connection is not None and connection.is_congested

    async def drain(self) -> None:
        """Wait until the server has read more, or the connection is gone."""
        connection = self._connection
        if connection is not None:
            await connection.drain()

    def flush(self) -> None:
        """Hand sent data to the socket at once, so that its reader need not wait for more."""
        if self._connection is not None:
            self._connection.flush()

    def on_loop_end(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, in the next turn of the loop, just before sent data is written."""
        self._at_loop_end.append(callback)
        if self._connection is not None:
            self._connection.wake()
        elif len(self._at_loop_end) == 1:
            asyncio.get_running_loop().call_soon(self._run_at_loop_end)

    async def publish(self, subject: str, data: bytes, *, reply: str = "") -> None:
        """Send as `send`; wait while the server reads more slowly."""
        self.send(subject, data, reply)
        if self.is_congested:
            await self.drain()

    def send(self, subject: str, data: bytes, reply: str = "") -> None:
        """Send `data`, or keep it while the server is away.

        Raises:
            HearthNetError: `payload_too_large` before anything is sent; `partition` if the link is closed, or
                more waits for the server than is kept.
        """
        size = len(data)
        if size > self.max_payload:
            raise payload_too_large(size, self.max_payload)
        line = f"PUB {subject} {reply} {size}\r\n" if reply else f"PUB {subject} {size}\r\n"
        connection = self._connection
        if connection is None:
            self._buffer(line.encode(), data, b"\r\n")
            return
        connection.write(line.encode(), data, b"\r\n")

    async def subscribe(self, subject: str, handler: Handler) -> None:
        """Call `handler` for every message on `subject`, in order.

        Raises:
            HearthNetError: `partition` if the link is closed.
        """
        self._handlers[self._subscribe(subject)] = handler

    async def subscribe_requests(self, subject: str, handler: RequestHandler) -> None:
        """Subscribe as `subscribe`, with the sender's subject for answers; never used for calls."""
        self._servers[self._subscribe(subject)] = handler

    def unsubscribe(self, subject: str) -> None:
        """End a subscription of `subscribe`."""
        number = self._subjects.index(subject)
        self._subjects[number] = ""
        del self._handlers[number]
        if self._connection is not None:
            self._connection.write(f"UNSUB {number}\r\n".encode())

    async def flush_subscriptions(self) -> None:
        """Make a round trip, after which the server has processed every earlier subscription.

        Raises:
            HearthNetError: `partition` if the connection breaks.
        """
        try:
            if self._connection is None:
                raise ConnectionResetError("it is away")
            await self._connection.round_trip()
        except (OSError, ConnectionRefused) as error:
            raise connection_lost(f"the connection to the server broke: {error}") from error

    async def request(self, subject: str, data: bytes, seconds: float) -> bytes:
        """Return the first answer to `data`, from any sender; only for the server, not for calls.

        Raises:
            TimeoutError: No answer within `seconds`.
            HearthNetError: `partition` if there are no subscribers or the link is closed.
        """
        if not self._request_count:
            await self.subscribe(f"{self._inbox}.ask.*", self._on_answer)
        self._request_count += 1
        place = f"{self._inbox}.ask.{self._request_count}"
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._requests[place] = answer
        try:
            await self.publish(subject, data, reply=place)
            async with asyncio.timeout(seconds):
                return await answer
        finally:
            del self._requests[place]

    async def close(self) -> None:
        """Send the waiting data and close."""
        if self._reconnecting is not None:
            self._reconnecting.cancel()
            await asyncio.wait({self._reconnecting})
        self._run_at_loop_end()
        connection, self._connection = self._connection, None
        self._end()
        if connection is not None:
            with contextlib.suppress(OSError, ConnectionRefused, TimeoutError):
                async with asyncio.timeout(_FAREWELL_SECONDS):
                    await connection.round_trip()
            connection.close()
        self._notify_lost()

    def _run_at_loop_end(self) -> None:
        """Call the callbacks that wait for the end of the turn."""
        while self._at_loop_end:
            callbacks, self._at_loop_end = self._at_loop_end, []
            for callback in callbacks:
                try:
                    callback()
                except Exception:
                    # The other callbacks, now and in later turns, must still be called.
                    _log.exception("as a turn ended")

    def _subscribe(self, subject: str) -> int:
        if self._closed.is_set():
            raise connection_lost("the connection to the server was closed")
        number = len(self._subjects)
        self._subjects.append(subject)
        if self._connection is not None:
            self._connection.write(_sub(subject, number))
        return number

    def _on_message(self, number: int, subject: str, reply: str, data: bytes, absent: bool) -> None:
        handler = self._handlers.get(number)
        try:
            if handler is not None:
                handler(subject, data, absent)
            elif (server := self._servers.get(number)) is not None:
                server(subject, reply, data)
        except Exception:
            # An error in a handler must not end the connection.
            _log.exception("a message on %s was not taken", subject)

    def _on_answer(self, subject: str, data: bytes, absent: bool) -> None:
        answer = self._requests.get(subject)
        if answer is not None and not answer.done():
            if absent:
                gone = Unavailable("nobody is there to be asked", rule="provider_gone")
                answer.set_exception(gone)
            else:
                answer.set_result(data)

    def _buffer(self, *pieces: bytes) -> None:
        if self._closed.is_set():
            raise connection_lost("the connection to the server is gone: it was closed")
        # With its line: of empty messages there would be no end. What is refused takes no room.
        size = sum(map(len, pieces))
        if self._unsent_bytes + size > MOST_WAITING:
            raise connection_lost("the server is away, and too much waits for it already")
        self._unsent_bytes += size
        self._unsent += pieces

    async def _open(self) -> NatsConnection:
        host, port = self._address
        connection = self._connection_to_open()
        async with asyncio.timeout(CONNECT_SECONDS):
            await connection.open(host, port)
        if not connection.alive:  # it broke before this task resumed
            raise ConnectionResetError("closed by the server")
        return connection

    def _connection_to_open(self) -> NatsConnection:
        return NatsConnection(
            self._login, self._name, self._on_message, self._on_disconnect, self._run_at_loop_end
        )

    def _use(self, connection: NatsConnection) -> None:
        """Use `connection`: subscribe first, then send the waiting data."""
        self._connection = connection
        self.max_payload = connection.greeting.max_payload
        connection.write(*(_sub(subject, number) for number, subject in enumerate(self._subjects) if subject))
        connection.write(*self._unsent)
        self._unsent, self._unsent_bytes = [], 0
        self._connected.set()

    def _on_disconnect(self) -> None:
        """Handle the loss of the connection, and reconnect."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        self._unsent += connection.unsent()
        self._connected.clear()
        self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect(), name="reconnect")
        self._notify_lost()

    def _notify_lost(self) -> None:
        for callback in self._lost_callbacks:
            try:
                callback()
            except Exception:
                _log.exception("after the connection was lost")

    async def _reconnect(self) -> None:
        pause, refusals = _FIRST_PAUSE, 0
        while True:
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, RECONNECT_SECONDS)
            try:
                connection = await self._open()
                break
            except (OSError, TimeoutError):
                refusals = 0
            except ConnectionRefused as error:
                # A server that reloads its configuration may refuse a login that it accepts a moment later.
                refusals += 1
                if refusals >= _REFUSALS:
                    _log.warning("the server refuses this login for good: %s", error)
                    self._end()
                    return
        self._use(connection)
        try:
            await connection.round_trip()
        except (OSError, ConnectionRefused):
            return  # it broke again, and `_on_disconnect` has started the next attempt
        self._restored_at = asyncio.get_running_loop().time()
        await self._notify_restored()

    async def _notify_restored(self) -> None:
        for callback in self._restored_callbacks:
            try:
                await callback()
            except HearthNetError as error:
                _log.warning("after the connection came back: %s", error)
            except Exception:
                # An error in one callback must not skip the others.
                _log.exception("after the connection came back")

    def _end(self) -> None:
        self._closed.set()
        self._connected.set()


def _sub(subject: str, number: int) -> bytes:
    return f"SUB {subject} {number}\r\n".encode()


def payload_too_large(size: int, limit: int, who: str = "the server") -> HearthNetError:
    """Return the error of a frame that is larger than `who` accepts."""
    return HearthNetError(
        "payload_too_large",
        f"the frame has {size} bytes, {who} takes {limit}; send less in one call",
        details={"limit": limit},
    )


def connect_error(url: str, error: Exception) -> HearthNetError:
    """Return the error of a connection to `url` that was not made."""
    if "authorization" in str(error).lower():
        return HearthNetError("unauthorized", f"the server at {url} refuses this node's login")
    reason = str(error) or type(error).__name__
    message = f"no NATS server answers at {url} ({reason}); is the node running?"
    return Unavailable(message, rule="no_server")


def connection_lost(message: str) -> Unavailable:
    """Return the error of a connection that has ended."""
    return Unavailable(message, rule="connection_lost")
