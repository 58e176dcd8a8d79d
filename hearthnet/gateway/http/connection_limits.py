"""TCP connections of the gateway, with limits on their number and slowness.

A client that sends the head or the body of a request too slowly, or reads its answer too slowly, is
disconnected: each such connection would hold memory and a place without end. A body is buffered only where
its head was admitted (`body_gate.py`).
"""

from __future__ import annotations

import asyncio
import functools
import logging
import resource
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hearthnet.gateway.http import body_gate
from hearthnet.gateway.http.body_gate import BodyGate
from hearthnet.gateway.http.rate_limits import is_loopback

_log = logging.getLogger(__name__)
_MOST_HEAD_BYTES: Final = 65_536
_MOST_WAITING: Final = 16
"""Requests of a connection that wait for the answer to an earlier one; each is held with its head."""
_SENDS: Final = "sends its request"
_READS: Final = "reads its answer"
_SPARE_FILES: Final = 128
_MAX_FILES: Final = 8_192
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 5\r\n"
    b"connection: close\r\n\r\n"
    b'{"error":"capacity_exceeded","message":"too many connections are open","retry_after_ms":5000}'
)


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of connections: times in seconds, and numbers.

    `head` and `body` limit the receiving of a request, `reading` the sending of the next part of an answer.
    `most` is the number of connections, `most_of_address` that of one address that is not of this computer.
    """

    head: float = 10.0
    body: float = 30.0
    reading: float = 30.0
    most: int = 4_000
    most_of_address: int = 100


class GuardedProtocol(HttpToolsProtocol):
    """HTTP on one connection; for `uvicorn.Config(http=...)`."""

    def __init__(self, patience: ConnectionLimits, bodies: BodyGate, **given: Any) -> None:
        super().__init__(**given)
        self._patience = patience
        self._bodies = bodies
        self._refused = False
        """Whether the body that comes now is dropped."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        """The running timers, by what the client does too slowly when one ends."""
        self._head_bytes = 0
        self._in_body = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, or refuse it with status 503."""
        super().connection_made(transport)
        if self._is_one_too_many():
            transport.write(_FULL)
            transport.close()
        else:
            self._start(_SENDS, self._patience.head)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers, and give back the room of requests that were not begun."""
        self._stop(_SENDS, _READS)
        for cycle, _app in self.pipeline:
            body_gate.release(cast("Scope", cycle.scope))
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Receive a piece of a request.

        A timer runs from its first byte to the end of its head, then another one for the body.
        """
        if self.transport.is_closing():
            return
        if _SENDS not in self._timers and self._is_between_requests():
            self._start(_SENDS, self._patience.head)
        self._head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._head_bytes > _MOST_HEAD_BYTES and not self._in_body and self.parser is not None:
            self._refuse_head()

    def _refuse_head(self) -> None:
        """Answer with status 400; cut the connection if an earlier answer is under way."""
        if self._is_between_requests():
            self.send_400_response("the head of the request is too large")
        else:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        """Start the timer of the body, and decide whether it is read.

        Raises:
            ConnectionAbortedError: if too many requests wait; it ends the parsing of what came with them.
        """
        if len(self.pipeline) >= _MOST_WAITING:
            self.transport.abort()
            raise ConnectionAbortedError("too many requests wait on this connection")
        self._head_bytes, self._in_body = 0, True
        self._start(_SENDS, self._patience.body)
        super().on_headers_complete()
        scope = cast("Scope", self.scope)
        # A request for a WebSocket has no path yet, and no body.
        self._refused = "path" in scope and not self._bodies.admit(scope)

    def on_body(self, body: bytes) -> None:
        """Receive a piece of a body; drop it where the body was refused."""
        if not self._refused:
            super().on_body(body)
        elif not self.scope[body_gate.ADMITTED].is_dropped:  # type: ignore[typeddict-item]
            self.flow.pause_reading()

    def on_message_complete(self) -> None:
        """Stop the timer of the body."""
        self._head_bytes, self._in_body = 0, False
        self._stop(_SENDS)
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        """Stop the timer; a WebSocket has timers of its own.

        A connection with earlier requests is cut: they would never be answered, nor give back their room.
        """
        self._stop(_SENDS)
        if self.pipeline or not getattr(self.cycle, "response_complete", True):
            self.transport.abort()
            return
        super().handle_websocket_upgrade()

    def pause_writing(self) -> None:
        """Start the timer of a client that reads more slowly than is written."""
        super().pause_writing()
        if _READS not in self._timers:
            self._start(_READS, self._patience.reading)

    def resume_writing(self) -> None:
        """Stop the timer of a client that reads again."""
        self._stop(_READS)
        super().resume_writing()

    def _is_between_requests(self) -> bool:
        return not self._in_body and getattr(self.cycle, "response_complete", True)

    def _is_one_too_many(self) -> bool:
        patience, connections = self._patience, self.connections
        if len(connections) > patience.most:
            return True
        address = self.client[0] if self.client else ""
        if len(connections) <= patience.most_of_address or is_loopback(address):
            return False
        same = [one for one in connections if (getattr(one, "client", None) or ("",))[0] == address]
        return len(same) > patience.most_of_address

    def _start(self, what: str, seconds: float) -> None:
        self._stop(what)
        self._timers[what] = self.loop.call_later(seconds, self._cut, what)

    def _stop(self, *timers: str) -> None:
        for what in timers:
            if what in self._timers:
                self._timers.pop(what).cancel()

    def _cut(self, what: str) -> None:
        self._stop(_SENDS, _READS)
        _log.info("a client at %s %s too slowly and is cut", self.client[0] if self.client else "?", what)
        self.transport.abort()


def protocol(patience: ConnectionLimits, bodies: BodyGate) -> Callable[..., GuardedProtocol]:
    """Return the factory of connections for `uvicorn.Config(http=...)`."""
    limits = msgspec.structs.replace(patience, most=min(patience.most, max(8, _files() - _SPARE_FILES)))
    return functools.partial(GuardedProtocol, limits, bodies)


def _files() -> int:
    """Raise the limit on open files of this process as needed; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return _MAX_FILES if soft == resource.RLIM_INFINITY else soft
