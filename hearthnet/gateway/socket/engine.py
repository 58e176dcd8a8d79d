"""The WebSocket engine: uvicorn's own on `websockets`, with a way to cut connections.

A client that no longer reads does not receive a close either: earlier bytes are in the way, and an orderly
end would never finish. Such a connection is cut. When the gateway ends, clients receive code 1001 and come
back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, cast

from starlette.types import Scope
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request

from hearthnet.gateway.http import body_gate
from hearthnet.gateway.http.body_gate import BodyGate

ABORT: Final = "hearthnet.abort"
"""The ASGI extension by which the application cuts its connection."""
SEND: Final = "hearthnet.send"
"""The ASGI extension by which the application sends several messages at once."""
KNOWN: Final = "hearthnet.known"
"""The ASGI extension by which the application says that the client is known."""
MAX_MESSAGE_BYTES: Final = 2_097_152
"""The largest message that is received at all; the protocol's own limit is smaller."""
MAX_UNKNOWN_BYTES: Final = 65_536
"""The largest message of a client that is not known yet."""
MAX_FRAGMENTS: Final = 1_024
"""Fragments of one message, since empty ones do not add to its size."""
CLOSE_SECONDS: Final = 5.0
"""The time in which a client must answer a close."""


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket connection; for `uvicorn.Config(ws=...)`."""

    def __init__(self, bodies: BodyGate, **given: Any) -> None:
        super().__init__(**given)
        self._bodies = bodies

    def handle_connect(self, event: Request) -> None:
        """Offer the extensions to the application."""
        self.close_timeout = CLOSE_SECONDS
        super().handle_connect(event)
        if not self.close_sent:
            if not self._bodies.admit_socket(cast("Scope", self.scope)):
                self.conn.max_message_size = MAX_UNKNOWN_BYTES
            self.scope["extensions"] |= {
                ABORT: {"abort": self.transport.abort},
                SEND: {"send": self.send_texts},
                KNOWN: {"known": self._known},
            }

    def _known(self) -> None:
        """Receive larger messages from now on, and free the place of an unknown client."""
        if self.conn.max_message_size == MAX_UNKNOWN_BYTES:
            self.conn.max_message_size = MAX_MESSAGE_BYTES
            body_gate.release(cast("Scope", self.scope))

    def handle_cont(self, event: Frame) -> None:
        """Receive a fragment; end the connection of a client that sends too many."""
        if len(self.frames) < MAX_FRAGMENTS:
            super().handle_cont(event)
            return
        self.frames = []
        self.conn.fail(CloseCode.MESSAGE_TOO_BIG, f"a message has at most {MAX_FRAGMENTS} fragments")
        self.handle_parser_exception()

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the place of the connection."""
        if self.handshake_initiated and hasattr(self, "scope"):
            body_gate.release(cast("Scope", self.scope))
        super().connection_lost(exc)

    async def send(self, message: ASGISendEvent) -> None:
        """Send an ASGI message; raises OSError also where the server has closed the socket."""
        if self.handshake_complete and self.close_sent:
            raise ClientDisconnected
        await super().send(message)

    async def send_texts(self, texts: Iterable[bytes]) -> None:
        """Send several text messages, each in UTF-8, in one write; raises OSError as `send` does.

        A system call for each message would cost more than all other work for a frame.
        """
        await self.writable.wait()
        if self.disconnected or self.close_sent:
            raise ClientDisconnected
        try:
            for text in texts:
                self.conn.send_text(text)
        except InvalidState as error:
            raise ClientDisconnected from error
        self.transport.write(b"".join(self.conn.data_to_send()))

    def keepalive_timeout(self) -> None:
        """Cut the connection of a client that answers no ping, with all unread data."""
        super().keepalive_timeout()
        self.transport.abort()

    def shutdown(self) -> None:
        """Close an open socket with code 1001, after which its client may come back."""
        if self.handshake_complete and not self.close_sent and not self.transport.is_closing():
            self.stop_keepalive()
            self.queue.put_nowait(
                {"type": "websocket.disconnect", "code": CloseCode.GOING_AWAY, "reason": ""}
            )
            self.conn.send_close(CloseCode.GOING_AWAY, "going_away: come back and resume")
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
            self.transport.close()
            return
        super().shutdown()
