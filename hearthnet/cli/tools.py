"""`hearthnet tools`: the tools that a model may be given (conventions.md 15)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hearthnet.cli import terminal
from hearthnet.cli.options import home_option, json_option
from hearthnet.cli.text import one_line

if TYPE_CHECKING:
    from hearthnet.home import Home


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
    import msgspec

    from hearthnet.bus import Bus
    from hearthnet.tools.availability import listed_tools

    async with await Bus.connect(home, name="cli tools") as bus:
        tools = listed_tools(await bus.offers())
    return [dict(msgspec.to_builtins(tool)) for tool in tools]
