"""One TCP connection to a NATS server, from its greeting to its end.

It does not reconnect; nats/client.py makes the next one (docs/decisions/0060).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from hearthnet import __version__
from hearthnet.nats.parser import Headed, Message, NatsParser, ProtocolError
from hearthnet.trust.keys import Login

if TYPE_CHECKING:
    from asyncio import Future, Transport

_log = logging.getLogger(__name__)
PING_SECONDS: Final = 10.0
"""Interval between pings on a connection, which counts as broken after two without an answer."""
_UNANSWERED: Final = 2
_HIGH_WATER: Final = 1 << 20


class Greeting(msgspec.Struct):
    """The relevant part of a server's first message."""

    nonce: str = ""
    max_payload: int = 1 << 20


class ConnectionRefused(Exception):
    """Raised with the server's text when the server ends the connection."""


class NatsConnection(asyncio.Protocol):
    """A connection, made with `open`; `gone` is called once, when an open one has ended.

    `on_loop_end` is called before written data is handed to the socket, and may write more. With `headed`,
    which is called for messages with headers, the connection does not get what it has sent itself.
    """

    def __init__(
        self,
        login: Login,
        name: str,
        message: Message,
        gone: Callable[[], None],
        on_loop_end: Callable[[], None],
        headed: Headed | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._login = login
        self._name = name
        self._gone = gone
        self._on_loop_end = on_loop_end
        self._reader = NatsParser(message, self._on_line, headed)
        self._has_echo = headed is None
        self._transport: Transport | None = None
        self._out: list[bytes] = []
        self._scheduled = False
        self._pongs: deque[Future[None]] = deque()
        self._unanswered = 0
        self._opened: Future[None] = self._loop.create_future()
        self._room: Future[None] | None = None
        self._pulse: asyncio.TimerHandle | None = None
        self._reason = ""
        self.greeting = Greeting()
        self.alive = False

    async def open(self, host: str, port: int) -> Self:
        """Connect and log in, once.

        Raises:
            ConnectionRefused: The server ended the connection.
            OSError: No connection was made.
        """
        await self._loop.create_connection(lambda: self, host, port)
        try:
            await self._opened
        except BaseException:
            self._gone = _nothing
            self.abort()
            raise
        return self

    def write(self, *pieces: bytes) -> None:
        """Send the pieces, together with all that is written before the next turn of the loop."""
        self._out += pieces
        if not self._scheduled:
            self.wake()

    def wake(self) -> None:
        """Hand the written data to the socket in the next turn of the loop."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    @property
    def is_congested(self) -> bool:
        """True if more is waiting than the socket accepts at once."""
        return self._room is not None

    async def drain(self) -> None:
        """Wait until the socket accepts more, or the connection is gone."""
        while self._room is not None:
            await asyncio.shield(self._room)

    async def round_trip(self) -> None:
        """Wait until the server has read all that was written before.

        Raises:
            ConnectionError: The connection is gone.
        """
        if not self.alive:
            raise ConnectionResetError("the connection is gone")
        pong: Future[None] = self._loop.create_future()
        self._pongs.append(pong)
        self.write(b"PING\r\n")
        await pong

    def close(self) -> None:
        """Send the written data and end the connection, without calling `gone`."""
        self._gone = _nothing
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def unsent(self) -> list[bytes]:
        """Return the data written and not yet handed to the socket, for the next connection."""
        out, self._out = self._out, []
        return out

    # The following methods are called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport; the server sends first."""
        self._transport = transport  # type: ignore[assignment]
        transport.set_write_buffer_limits(_HIGH_WATER)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        """Parse received data."""
        try:
            self._reader.feed(data)
        except ProtocolError as error:
            self._fail(f"what answers is no NATS server: {error}")

    def pause_writing(self) -> None:
        """Record that the server reads too slowly."""
        if self._room is None:
            self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        """Record that the server has caught up."""
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Handle the end, of either side."""
        was_alive, self.alive = self.alive, False
        if self._pulse is not None:
            self._pulse.cancel()
        self.resume_writing()
        lost = (
            ConnectionRefused(self._reason)
            if self._reason
            else ConnectionResetError(str(error or "closed by the server"))
        )
        for waiting in (self._opened, *self._pongs):
            if not waiting.done():
                waiting.set_exception(lost)
                waiting.exception()  # retrieved, as the waiter may be gone
        self._pongs.clear()
        if was_alive:
            self._gone()

    def _on_line(self, line: bytes) -> None:
        if line.startswith(b"PING"):
            self.write(b"PONG\r\n")
        elif line.startswith(b"PONG"):
            self._on_pong()
        elif line.startswith(b"INFO "):
            self._on_info(line[5:])
        elif line.startswith(b"-ERR"):
            self._on_error(str(line[4:], "utf-8", "replace").strip(" '"))
        elif not line.startswith(b"+OK"):
            raise ProtocolError(f"{line[:40]!r} is no operation")

    def _on_info(self, line: bytes) -> None:
        try:
            self.greeting = msgspec.json.decode(line, type=Greeting)
        except msgspec.DecodeError as error:
            raise ProtocolError(str(error)) from error
        if not self._opened.done() and not self._pongs:
            # The answer to this PING confirms the login.
            self._pongs.append(self._opened)
            self.write(b"CONNECT ", msgspec.json.encode(self._hello()), b"\r\nPING\r\n")

    def _hello(self) -> dict[str, Any]:
        return {
            "verbose": False,
            "pedantic": False,
            "name": self._name,
            "lang": "python-hearthnet",
            "version": __version__,
            "protocol": 1,
            "echo": self._has_echo,
            "headers": True,
            "no_responders": True,
            **(self._login.answer(self.greeting.nonce) if self.greeting.nonce else {}),
        }

    def _on_pong(self) -> None:
        if not self._pongs:
            return
        self._unanswered = 0
        waiting = self._pongs.popleft()
        if waiting is self._opened:
            self.alive = True
            self._pulse = self._loop.call_later(PING_SECONDS, self._beat)
        if not waiting.done():
            waiting.set_result(None)

    def _on_error(self, words: str) -> None:
        """Record an error that ends the connection; permission errors do not, and are logged only."""
        _log.warning("nats: %s", words)
        if not words.lower().startswith(("permissions violation", "invalid subject")):
            self._reason = words

    def _beat(self) -> None:
        """Ping the connection, which may have broken unnoticed."""
        # Round trips that have only just begun are no sign of silence, however many there are.
        if self._unanswered >= _UNANSWERED:
            self._fail("the server does not answer any more")
            return
        self._unanswered += 1
        self._pongs.append(self._loop.create_future())
        self.write(b"PING\r\n")
        self._pulse = self._loop.call_later(PING_SECONDS, self._beat)

    def _fail(self, reason: str) -> None:
        _log.warning("nats: %s", reason)
        self._reason = self._reason or reason
        self.abort()

    def _flush(self) -> None:
        self._on_loop_end()
        self._scheduled = False
        self.flush()

    def flush(self) -> None:
        """Hand the written data to the socket at once."""
        if self._out and self._transport is not None and not self._transport.is_closing():
            out, self._out = self._out, []
            self._transport.write(b"".join(out))


def _nothing() -> None:
    """Replace `gone` of a connection that was closed on purpose."""
