"""The WebSocket protocol `hearthnet-bus.v2` at `/v1/socket`.

See: docs/gateway.md, "WebSocket".
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from starlette.routing import BaseRoute, WebSocketRoute

if TYPE_CHECKING:
    from hearthnet.gateway.context import Gateway

PATH: Final = "/v1/socket"


def routes(gateway: Gateway) -> list[BaseRoute]:
    """Return the one route of this part."""
    from hearthnet.gateway.socket.hub import Hub
    from hearthnet.gateway.socket.protocol import SocketSettings

    configured = gateway.config.gateway
    gateway.sockets = Hub(gateway, SocketSettings(idle_seconds=configured.idle_close_seconds))
    return [WebSocketRoute(PATH, gateway.sockets)]


@contextlib.asynccontextmanager
async def lifespan(gateway: Gateway) -> AsyncIterator[None]:
    """Close the open sockets when the gateway ends."""
    try:
        yield
    finally:
        await gateway.sockets.close()
