"""MCP over stdin and stdout, for programs of the home's owner (`hearthnet mcp serve`)."""

from __future__ import annotations

from hearthnet.bus import Bus
from hearthnet.core.home import Home
from hearthnet.gateway.mcp.caller import OwnerCaller


async def serve(home: Home) -> None:
    """Serve until stdin ends. Raises as `Bus.connect`."""
    from mcp.server.stdio import stdio_server

    from hearthnet.gateway.mcp.server import McpSide

    async with await Bus.connect(home, name="mcp stdio") as bus:
        owner = OwnerCaller(bus)
        side = McpSide(bus, lambda context: owner)
        async with side.watching(), stdio_server() as (read, write):
            await side.server.run(read, write, side.server.create_initialization_options())
