"""The WebSocket engine: uvicorn's own on `websockets`, with a way to cut connections.

A client that no longer reads does not receive a close either: earlier bytes are in the way, and an orderly
end would never finish. Such a connection is cut. When the gateway ends, clients receive code 1001 and come
back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.frames import CloseCode
from websockets.http11 import Request

ABORT: Final = "hearthnet.abort"
"""The ASGI extension by which the application cuts its connection."""
SEND: Final = "hearthnet.send"
"""The ASGI extension by which the application sends several messages at once."""
CLOSE_SECONDS: Final = 5.0
"""The time in which a client must answer a close."""


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket connection; for `uvicorn.Config(ws=...)`."""

    def handle_connect(self, event: Request) -> None:
        """Offer the extensions to the application."""
        self.close_timeout = CLOSE_SECONDS
        super().handle_connect(event)
        if not self.close_sent:
            self.scope["extensions"] |= {
                ABORT: {"abort": self.transport.abort},
                SEND: {"send": self.send_texts},
            }

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
