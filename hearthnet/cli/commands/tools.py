"""`hearthnet tools`: the tools that a model may be given.

See: docs/tools.md#the-parts.
"""

from __future__ import annotations

import asyncio
from typing import Any

import click

from hearthnet.cli.input.options import common_options
from hearthnet.cli.output import terminal
from hearthnet.cli.output.text import counted, one_line
from hearthnet.core.home import Home


@click.command("tools")
@common_options
def command(home: Home, json: bool) -> None:
    """List the built-in tools, whether they are available, and how models use them.

    The use is counted in the runs of the last day that called something: in how many of them the tool was
    shown, and how often it was called. `hearthnet ask --tool NAME` has a model call one.
    """
    rows = asyncio.run(_rows(home))
    if json:
        terminal.json_page({"tools": rows})
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        state = "available" if row["available"] else f"not available: {row['reason']}"
        asks = ", asks first" if row["side_effects"] else ""
        used = _used(row["used"])
        terminal.line(f"{row['name'].ljust(width)}  {row['capability']}{asks}; {one_line(state)}{used}")


def _used(used: dict[str, int]) -> str:
    """Return the use of a tool by models, empty if it was never shown."""
    if not used["shown"]:
        return ""
    shown = counted(used["shown"], "run")
    return f"; shown in {shown}, called {used['called']} times, unused in {used['unused']}"


async def _rows(home: Home) -> list[dict[str, Any]]:
    import msgspec

    from hearthnet.agent.loop.usage import Usage, usage_of
    from hearthnet.agent.tools.builtin import listed_tools
    from hearthnet.bus.bus import Bus
    from hearthnet.cli.workflows.run_commands import open_saved_runs

    async with await Bus.connect(home, name="cli tools") as bus:
        tools = listed_tools(await bus.offers())
    async with open_saved_runs(home) as saved:
        used = usage_of(record.state for record in (await saved.listing()).runs if record.ended)
    return [
        {**msgspec.to_builtins(tool), "used": msgspec.to_builtins(used.get(tool.name, Usage()))}
        for tool in tools
    ]
