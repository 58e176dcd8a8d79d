"""`hearthnet tools`: the tools that a model may be given (conventions.md 15)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hearthnet.cli import terminal
from hearthnet.cli.options import home_option, json_option
from hearthnet.cli.text import one_line

if TYPE_CHECKING:
    from hearthnet.home import Home
    from hearthnet.tools.types import ToolDefinition


@click.command("tools")
@home_option
@json_option
def command(home: Home, json: bool) -> None:
    """List the built-in tools: what each does, and whether somebody offers what it needs.

    `hearthnet ask --tool NAME` has a model call one.
    """
    import asyncio

    rows = asyncio.run(_rows(home))
    if json:
        terminal.json_page({"tools": rows})
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        state = "available" if row["available"] else f"not available: {row['reason']}"
        asks = ", asks first" if row["side_effects"] else ""
        terminal.line(f"{row['name'].ljust(width)}  {row['capability']}{asks}; {one_line(state)}")


async def _rows(home: Home) -> list[dict[str, Any]]:
    from hearthnet.bus import Bus
    from hearthnet.tools.builtin import builtin_names, builtin_tools

    async with await Bus.connect(home, name="cli tools") as bus:
        offers = await bus.offers()
    there: dict[str, set[str]] = {}
    for view in offers:
        there.setdefault(view.capability.name, set()).add(view.node)
    return [_row(tool, there) for tool in builtin_tools(builtin_names())]


def _row(tool: ToolDefinition, there: dict[str, set[str]]) -> dict[str, Any]:
    name = str(tool.bound_capability)
    major, minor = tool.bound_version or (0, 0)
    nodes = sorted(there.get(name, ()))
    return {
        "name": tool.name,
        "description": tool.description,
        "capability": f"{name}@{major}.{minor}",
        "side_effects": tool.side_effects,
        "available": bool(nodes),
        "nodes": nodes,
        "reason": "" if nodes else f"nobody offers {name} now",
    }
