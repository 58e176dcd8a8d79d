"""The mesh as an MCP server: `/mcp` of the gateway, and stdio (docs/mcp.md).

The MCP library takes more than a second to import and few clients need it, so it is loaded at the first
request (docs/decisions/0105).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from starlette.routing import BaseRoute, Route

from hearthnet.gateway.mcp.endpoint import McpEndpoint

if TYPE_CHECKING:
    from hearthnet.gateway.context import Gateway


def routes(gateway: Gateway) -> list[BaseRoute]:
    """Return the routes of this part."""
    gateway.mcp = McpEndpoint(gateway)
    return [Route("/mcp", gateway.mcp)]


@contextlib.asynccontextmanager
async def lifespan(gateway: Gateway) -> AsyncIterator[None]:
    """End the sessions with the gateway."""
    try:
        yield
    finally:
        if gateway.mcp is not None:
            await gateway.mcp.close()
