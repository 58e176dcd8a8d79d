"""The bus connection of one process: comes back by itself, with its subscriptions.

JetStream has its own (bus/store_link.py).

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

from hearthnet.bus.connection import Connection, Refused
from hearthnet.errors import HearthNetError
from hearthnet.trust.keys import Login

_log = logging.getLogger(__name__)
CONNECT_SECONDS: Final = 3
RECONNECT_SECONDS: Final = 1.0
"""The longest pause between two attempts to come back; the first follow at once."""
SETTLING_SECONDS: Final = 3.0
"""How long after a reconnection others may still be on their way back: each tries once a second."""
MOST_WAITING: Final = 8 * 1024 * 1024
"""Bytes that are kept for the server while it is away."""
_FIRST_PAUSE: Final = 0.05
_AGAIN: Final = 3
_REFUSALS: Final = 2
_FAREWELL_SECONDS: Final = 1.0
_PORT: Final = 4222
Handler = Callable[[str, bytes, bool], None]
"""Takes a subject, the data, and whether the server said that nobody is there (503). Must not block."""
RequestHandler = Callable[[str, str, bytes], None]
"""Takes a subject, the subject to answer to (empty for none) and the data. Must not block."""


class Link:
    """A connection that comes back by itself; `lost` and `back` tell those who wait on it."""

    def __init__(self, url: str, login: Login, name: str, inbox: str = "_INBOX") -> None:
        self._url = url
        parts = urlsplit(url)
        self._place = parts.hostname or "", parts.port or _PORT
        self._login = login
        self._name = name
        self._inbox = inbox
        self._connection: Connection | None = None
        self._subjects: list[str] = []
        """What is listened to; the number of a subscription is its place."""
        self._handlers: dict[int, Handler] = {}
        self._servers: dict[int, RequestHandler] = {}
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._coming_back: asyncio.Task[None] | None = None
        self._max_payload = 0
        self._connected = asyncio.Event()
        self._closed = asyncio.Event()
        self._back_at = -SETTLING_SECONDS
        self._lost: list[Callable[[], None]] = []
        self._back: list[Callable[[], Awaitable[None]]] = []
        self._asked: dict[str, asyncio.Future[bytes]] = {}
        self._asks = 0
        self._leaving: list[Callable[[], None]] = []

    @classmethod
    async def connect(cls, url: str, login: Login, name: str, *, inbox: str = "_INBOX") -> Link:
        """Connects to `url`; `partition` with the address where nobody answers, `unauthorized`
        where the login is refused.

        A server that reads its configuration again closes connections that are just being made, or refuses
        their logins for a moment: those are made once more.
        """
        link = cls(url, login, name, inbox)
        tries = {ConnectionResetError: _AGAIN, Refused: _REFUSALS - 1}
        while not link.is_connected:
            try:
                link._take(await link._open())
            except (OSError, TimeoutError, Refused) as error:
                left = tries.get(type(error), 0)
                if not left:
                    raise _refused(url, error) from error
                tries[type(error)] = left - 1
                await asyncio.sleep(_FIRST_PAUSE)
        return link

    @property
    def max_payload(self) -> int:
        """The largest message the server takes, in bytes."""
        return self._max_payload

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Calls back whenever the connection ends."""
        self._lost.append(callback)

    def on_back(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Calls back whenever the connection is there again, its subscriptions with it."""
        self._back.append(callback)

    @property
    def is_connected(self) -> bool:
        """Whether the connection is there now."""
        return self._connection is not None

    @property
    def settling(self) -> bool:
        """Whether the connection came back only now, so that others may not be back yet."""
        return asyncio.get_running_loop().time() - self._back_at < SETTLING_SECONDS

    async def connected(self) -> None:
        """Waits until the connection is there; `partition` where it was closed for good."""
        if not self._connected.is_set():
            await self._connected.wait()
        if self._closed.is_set():
            raise HearthNetError("partition", "the connection to the server was closed")

    async def closed(self) -> None:
        """Waits until the connection is over for good: closed here, or the server refuses the login."""
        await self._closed.wait()

    @property
    def full(self) -> bool:
        """Whether the server reads more slowly than is sent: who sends more should wait for `room`."""
        connection = self._connection
        return connection is not None and connection.full

    async def room(self) -> None:
        """Waits until the server has read more, or the connection is gone."""
        connection = self._connection
        if connection is not None:
            await connection.room()

    def flush(self) -> None:
        """Has what was sent leave at once: its reader need not wait for more."""
        if self._connection is not None:
            self._connection.flush()

    def at_end_of_turn(self, callback: Callable[[], None]) -> None:
        """Calls back once, in the next turn of the loop, just before what was sent until then leaves."""
        self._leaving.append(callback)
        if self._connection is not None:
            self._connection.wake()
        elif len(self._leaving) == 1:
            asyncio.get_running_loop().call_soon(self._leave)

    async def publish(self, subject: str, data: bytes, *, reply: str = "") -> None:
        """As `send`; waits while the server reads more slowly than is sent."""
        self.send(subject, data, reply)
        if self.full:
            await self.room()

    def send(self, subject: str, data: bytes, reply: str = "") -> None:
        """Sends `data`, and keeps what is sent while the server is away.

        `payload_too_large` before anything is sent, `partition` where the link is closed, or more is waiting
        for the server than is kept.
        """
        size = len(data)
        if size > self._max_payload:
            raise HearthNetError(
                "payload_too_large",
                f"the frame has {size} bytes, the server takes {self._max_payload}; send it by its CID",
                details={"limit": self._max_payload},
            )
        line = f"PUB {subject} {reply} {size}\r\n" if reply else f"PUB {subject} {size}\r\n"
        connection = self._connection
        if connection is None:
            self._keep(line.encode(), data, b"\r\n")
            return
        connection.write(line.encode(), data, b"\r\n")

    async def subscribe(self, subject: str, handler: Handler) -> None:
        """Hands every message on `subject` to `handler`, in order; `partition` where the link is closed."""
        self._handlers[self._subscribe(subject)] = handler

    async def subscribe_requests(self, subject: str, handler: RequestHandler) -> None:
        """As `subscribe`, for those whose answer goes where the asker says. Calls are never answered so."""
        self._servers[self._subscribe(subject)] = handler

    async def settle(self) -> None:
        """A round trip: after it the server knows every subscription made before. `partition` where
        the connection breaks meanwhile.
        """
        try:
            if self._connection is None:
                raise ConnectionResetError("it is away")
            await self._connection.round_trip()
        except (OSError, Refused) as error:
            raise HearthNetError("partition", f"the connection to the server broke: {error}") from error

    async def request(self, subject: str, data: bytes, seconds: float) -> bytes:
        """The first answer to `data`, wherever it comes from: for questions to the server, never for calls.

        TimeoutError after `seconds`, `partition` where nobody is there or the link is closed.
        """
        if not self._asks:
            await self.subscribe(f"{self._inbox}.ask.*", self._on_answer)
        self._asks += 1
        place = f"{self._inbox}.ask.{self._asks}"
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked[place] = answer
        try:
            await self.publish(subject, data, reply=place)
            async with asyncio.timeout(seconds):
                return await answer
        finally:
            del self._asked[place]

    async def close(self) -> None:
        """Sends what is waiting and closes."""
        if self._coming_back is not None:
            self._coming_back.cancel()
            await asyncio.wait({self._coming_back})
        self._leave()
        connection, self._connection = self._connection, None
        self._end()
        if connection is not None:
            with contextlib.suppress(OSError, Refused, TimeoutError):
                async with asyncio.timeout(_FAREWELL_SECONDS):
                    await connection.round_trip()
            connection.close()
        self._tell_lost()

    def _leave(self) -> None:
        """Has everybody send who waited for the end of the turn."""
        while self._leaving:
            leaving, self._leaving = self._leaving, []
            for callback in leaving:
                try:
                    callback()
                except Exception:
                    # What else is to leave, now and in later turns, must not stay for it.
                    _log.exception("as a turn ended")

    def _subscribe(self, subject: str) -> int:
        if self._closed.is_set():
            raise HearthNetError("partition", "the connection to the server was closed")
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
            # One message that its reader chokes on must not end the connection.
            _log.exception("a message on %s was not taken", subject)

    def _on_answer(self, subject: str, data: bytes, absent: bool) -> None:
        answer = self._asked.get(subject)
        if answer is not None and not answer.done():
            if absent:
                answer.set_exception(HearthNetError("partition", "nobody is there to be asked"))
            else:
                answer.set_result(data)

    def _keep(self, *pieces: bytes) -> None:
        if self._closed.is_set():
            raise HearthNetError("partition", "the connection to the server is gone: it was closed")
        self._waiting_bytes += len(pieces[1])
        if self._waiting_bytes > MOST_WAITING:
            raise HearthNetError("partition", "the server is away, and too much waits for it already")
        self._waiting += pieces

    async def _open(self) -> Connection:
        host, port = self._place
        async with asyncio.timeout(CONNECT_SECONDS):
            connection = await Connection.open(
                host, port, self._login, self._name, self._on_message, self._on_gone, self._leave
            )
        if not connection.alive:  # it broke before we were woken
            raise ConnectionResetError("closed by the server")
        return connection

    def _take(self, connection: Connection) -> None:
        """Goes on with `connection`: first what is listened to, then what is waiting to be sent."""
        self._connection = connection
        self._max_payload = connection.greeting.max_payload
        connection.write(*(_sub(subject, number) for number, subject in enumerate(self._subjects)))
        connection.write(*self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        self._connected.set()

    def _on_gone(self) -> None:
        """The connection broke."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        self._waiting += connection.unsent()
        self._connected.clear()
        self._coming_back = asyncio.get_running_loop().create_task(self._come_back(), name="reconnect")
        self._tell_lost()

    def _tell_lost(self) -> None:
        for callback in self._lost:
            try:
                callback()
            except Exception:
                _log.exception("after the connection was lost")

    async def _come_back(self) -> None:
        pause, refusals = _FIRST_PAUSE, 0
        while True:
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, RECONNECT_SECONDS)
            try:
                connection = await self._open()
                break
            except (OSError, TimeoutError):
                refusals = 0
            except Refused as error:
                # A server that reads its configuration again may refuse once what it takes a moment later.
                refusals += 1
                if refusals >= _REFUSALS:
                    _log.warning("the server refuses this login for good: %s", error)
                    self._end()
                    return
        self._take(connection)
        try:
            await connection.round_trip()
        except (OSError, Refused):
            return  # it broke again, which has begun the next attempt
        self._back_at = asyncio.get_running_loop().time()
        await self._tell_back()

    async def _tell_back(self) -> None:
        for callback in self._back:
            try:
                await callback()
            except HearthNetError as error:
                _log.warning("after the connection came back: %s", error)
            except Exception:
                # Who chokes on it must not keep the others from hearing it.
                _log.exception("after the connection came back")

    def _end(self) -> None:
        self._closed.set()
        self._connected.set()


def _sub(subject: str, number: int) -> bytes:
    return f"SUB {subject} {number}\r\n".encode()


def _refused(url: str, error: Exception) -> HearthNetError:
    if isinstance(error, Refused) and "authorization" in str(error).lower():
        return HearthNetError("unauthorized", f"the server at {url} refuses this node's login")
    reason = str(error) or type(error).__name__
    return HearthNetError("partition", f"no NATS server answers at {url} ({reason}); is the node running?")
