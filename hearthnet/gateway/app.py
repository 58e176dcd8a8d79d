"""The gateway: the state that its parts share, and the application built from them.

A part is a module of this package with `routes(gateway)`. One that works in the background also has
`lifespan(gateway)`, an async context manager that is open as long as the gateway is.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from importlib import import_module
from types import ModuleType
from typing import Final

from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from hearthnet.gateway.context import Gateway
from hearthnet.gateway.http.errors import HANDLERS
from hearthnet.gateway.middleware import AuthMiddleware, origin_pattern

PARTS: Final = ("auth.session_routes", "api.call_routes", "openai", "socket", "mcp", "runs.routes", "page")
"""In the order of their routes: the page is last, because it takes all paths that no other part takes."""
_EXPOSED: Final = ("mcp-session-id", "retry-after", "www-authenticate", "x-should-retry")
_PACKAGE: Final = "hearthnet.gateway"


def build(gateway: Gateway) -> ASGIApp:
    """Return the application: all parts behind one guard."""
    routes: list[BaseRoute] = []
    for part in parts():
        routes.extend(part.routes(gateway))
    app: ASGIApp = Starlette(routes=routes, exception_handlers=HANDLERS)
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
    """Run the background work of the parts; the last one opened is closed first."""
    async with contextlib.AsyncExitStack() as stack:
        for part in parts():
            if hasattr(part, "lifespan"):
                await stack.enter_async_context(part.lifespan(gateway))
        yield


def parts() -> list[ModuleType]:
    """Return the parts that are installed, in the order of their routes."""
    return [import_module(f"{_PACKAGE}.{name}") for name in PARTS]
