"""An MCP server by MCP's own library: progress, cancellation, an end without warning, a list that changes.

Its only argument is a folder in which it writes down what happened to it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations

FOLDER = Path(sys.argv[1])
server = MCPServer("odd")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def count(to: int, ctx: Context) -> str:
    """Counts, and says how far it is."""
    for step in range(1, to + 1):
        await ctx.report_progress(step, to, f"step {step}")
    return f"counted to {to}"


@server.tool()
async def wait() -> str:
    """Waits until it is cancelled."""
    (FOLDER / "waiting").touch()
    try:
        await anyio.sleep_forever()
    finally:
        (FOLDER / "cancelled").touch()
    return "never"


@server.tool()
async def die() -> str:
    """Ends the server before it answers."""
    os._exit(3)


@server.tool()
async def fail(why: str) -> str:
    """Fails."""
    raise ValueError(why)


def late(text: str) -> str:
    """Came later."""
    return text


@server.tool(name="growList")
async def grow(ctx: Context) -> str:
    """Adds a tool to the list."""
    server.add_tool(late, description=f"Came later, {len(await server.list_tools())}")
    await ctx.notify_tools_changed()
    return "grown"


@server.tool()
async def environment(name: str) -> str:
    """The value of a variable, as the server sees it."""
    return os.environ.get(name, "(not set)")


if __name__ == "__main__":
    server.run("stdio")
