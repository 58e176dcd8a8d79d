"""The gateway as an application, built from its parts: modules of this package with `routes(gateway)`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Final

from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from hearthnet.gateway import page
from hearthnet.gateway.api import call_routes
from hearthnet.gateway.auth import session_routes
from hearthnet.gateway.context import Gateway
from hearthnet.gateway.http import body_gate
from hearthnet.gateway.http.errors import HANDLERS
from hearthnet.gateway.mcp import endpoint
from hearthnet.gateway.middleware import AuthMiddleware, origin_pattern
from hearthnet.gateway.openai import chat
from hearthnet.gateway.runs import conversation_routes
from hearthnet.gateway.runs import routes as run_routes
from hearthnet.gateway.socket import hub

PARTS: Final = (session_routes, call_routes, chat, hub, endpoint, run_routes, conversation_routes, page)
"""In the order of their routes: the page is last, because it takes all paths that no other part takes."""
_EXPOSED: Final = ("mcp-session-id", "retry-after", "www-authenticate", "x-should-retry")


def build(gateway: Gateway) -> ASGIApp:
    """Return the application: all parts behind one guard."""
    app = body_gate.answering(Starlette(routes=routes_of(gateway), exception_handlers=HANDLERS))
    origins = gateway.config.gateway.origins
    return AuthMiddleware(_readable_from(app, origins) if origins else app, gateway)


def _readable_from(app: ASGIApp, origins: tuple[str, ...]) -> ASGIApp:
    """Return `app` with CORS headers for pages of `origins`: with a key, never with a cookie.

    Any header is allowed: each client library sends its own, and only Authorization identifies the client.
    The middleware wraps the whole application, so that a page can read errors too.
    """
    return CORSMiddleware(
        app,
        allow_origin_regex=origin_pattern(origins),
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        allow_private_network=True,
        expose_headers=_EXPOSED,
        max_age=600,
    )


@contextlib.asynccontextmanager
async def lifespan(gateway: Gateway) -> AsyncIterator[None]:
    """Close the store of the runs, then the MCP sessions, then the sockets, when the gateway ends."""
    async with contextlib.AsyncExitStack() as stack:
        for part in (gateway.sockets, gateway.mcp, gateway.runs):
            stack.push_async_callback(part.close)
        yield


def routes_of(gateway: Gateway) -> list[BaseRoute]:
    """Return the routes of all parts, in their order."""
    return [route for part in PARTS for route in part.routes(gateway)]
