"""The endpoint `/mcp`: authenticates clients and binds each session to its client."""

from __future__ import annotations

import asyncio
import importlib
import logging
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from hearthnet.gateway.http.rate_limits import MOST_BODY_BYTES
from hearthnet.gateway.mcp.caller import Caller, ClientCaller

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from hearthnet.gateway.context import Gateway

_log = logging.getLogger(__name__)
MOST_SESSIONS: Final = 256
IDLE_SECONDS: Final = 1_800.0
_CLIENT: Final = "hearthnet.client"
_SERVER: Final = "hearthnet.gateway.mcp.server"


def routes(gateway: Gateway) -> list[BaseRoute]:
    """Return the one route of this part."""
    gateway.mcp = McpEndpoint(gateway)
    return [Route("/mcp", gateway.mcp)]


class McpEndpoint:
    """An ASGI application that sets up the MCP library at the first request."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._manager: StreamableHTTPSessionManager | None = None
        self._opening = asyncio.Lock()
        self._ending = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; raise authentication errors before anything is read."""
        client = await self._gateway.clients.from_request(Request(scope))
        manager = await self._opened()
        from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
        from mcp.server.auth.provider import AccessToken

        scope[_CLIENT] = client
        # The library compares this, so that no client can use the session of another.
        scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=client.id, scopes=[]))
        await manager.handle_request(scope, receive, send)

    async def close(self) -> None:
        """End all sessions."""
        self._ending.set()
        if self._running is not None:
            await asyncio.wait({self._running})

    async def _opened(self) -> StreamableHTTPSessionManager:
        async with self._opening:
            if self._manager is None:
                module: Any = await asyncio.to_thread(importlib.import_module, _SERVER)
                side = module.McpSide(self._gateway.bus, self._caller)
                ready: asyncio.Future[StreamableHTTPSessionManager] = asyncio.Future()
                self._running = asyncio.create_task(self._run(side, ready), name="mcp sessions")
                self._manager = await ready
            return self._manager

    async def _run(self, side: Any, ready: asyncio.Future[StreamableHTTPSessionManager]) -> None:
        """Hold the library's task group, which must be left by the task that entered it."""
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        manager = StreamableHTTPSessionManager(
            side.server,
            session_idle_timeout=IDLE_SECONDS,
            max_request_body_size=MOST_BODY_BYTES,
            max_sessions=MOST_SESSIONS,
        )
        async with manager.run(), side.watching():
            ready.set_result(manager)
            await self._ending.wait()
        _log.info("the MCP sessions have ended")

    def _caller(self, context: Any) -> Caller:
        """Return the caller of an MCP request."""
        return ClientCaller(self._gateway, context.request.scope[_CLIENT])
