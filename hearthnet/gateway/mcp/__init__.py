"""The mesh as an MCP server: `/mcp` of the gateway, and stdio (docs/mcp.md; docs/decisions/0105).

MCP's own library takes more than a second to import and speaks to few: it is loaded for the first who asks.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from starlette.routing import BaseRoute, Route

from hearthnet.gateway.mcp.endpoint import Endpoint

if TYPE_CHECKING:
    from hearthnet.gateway.app import Gateway


def routes(gateway: Gateway) -> list[BaseRoute]:
    """As app.py wants them."""
    gateway.mcp = Endpoint(gateway)
    return [Route("/mcp", gateway.mcp)]


@contextlib.asynccontextmanager
async def lifespan(gateway: Gateway) -> AsyncIterator[None]:
    """Ends the sessions with the gateway."""
    try:
        yield
    finally:
        if gateway.mcp is not None:
            await gateway.mcp.close()
