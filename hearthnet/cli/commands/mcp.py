"""`hearthnet mcp`: MCP servers of this node, and this node as an MCP server (docs/mcp.md)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import click

from hearthnet.cli.input import settings_file
from hearthnet.cli.input.options import Commands, common_options, home_option
from hearthnet.cli.output import terminal
from hearthnet.cli.output.suggest import unknown
from hearthnet.cli.output.text import one_line
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home

if TYPE_CHECKING:
    from hearthnet.bus.routing.offer_registry import OfferView
    from hearthnet.core.config import McpServerConfig

SERVICE: Final = "mcp"
PREFIX: Final = "experimental.mcp."
WAIT_SECONDS: Final = 20.0
_PAUSE_SECONDS: Final = 0.2
_STARTING: Final = "it is starting"


@click.group("mcp", cls=Commands)
def command() -> None:
    """MCP servers: their tools on the bus, and the mesh as tools for MCP clients."""


@command.command("add")
@click.argument("name")
@click.argument("program", nargs=-1, required=True, metavar="-- COMMAND [ARGS]...")
@click.option(
    "--read-only", multiple=True, metavar="TOOL", help="Call this tool without asking. Several: all."
)
@click.option("--trust-hints", is_flag=True, help="Also those that the server itself calls read-only.")
@click.option(
    "--env", multiple=True, metavar="VARIABLE", help="Give it this environment variable of the node."
)
@click.option("--share", is_flag=True, help="Offer its tools to all members, not only to this node.")
@click.option("--timeout", type=click.IntRange(1, 3_600), default=60, help="Seconds for a call. Default: 60.")
@common_options
def add(name: str, program: tuple[str, ...], home: Home, json: bool, **options: Any) -> None:
    """Run an MCP server with this node, and offer its tools as experimental.mcp.NAME.TOOL.

    A person confirms each call of a tool, except for tools that are named as read-only. A key goes through
    the environment of the node: name its variable with --env, or write '${VARIABLE}' in an argument.

    \b
      hearthnet mcp add notes --read-only read_text_file -- \\
          npx -y @modelcontextprotocol/server-filesystem ~/notes
    """
    server = _config(name, program, options)
    known = {one.name for one in settings_file.settings(home).mcp.servers}
    if name in known:
        raise HearthNetError(
            "bad_request",
            f"there is an MCP server {name} already; take it out first: hearthnet mcp remove {name}",
        )
    _check_program(program[0])
    settings_file.insert(home, server)
    state = asyncio.run(_settled(home, server))
    terminal.result(json, state, lambda: _show(state))


@command.command("list")
@common_options
def list_(home: Home, json: bool) -> None:
    """List the MCP servers of this node, and their present tools."""
    states = asyncio.run(_states(home, settings_file.settings(home).mcp.servers))
    if json:
        terminal.json_page({"servers": states})
        return
    if not states:
        terminal.line("no MCP server runs with this node; add one with: hearthnet mcp add NAME -- COMMAND")
    for state in states:
        _show(state)


@command.command("remove")
@click.argument("name")
@common_options
def remove(name: str, home: Home, json: bool) -> None:
    """End an MCP server, and take its tools off the bus."""
    known = {server.name: server for server in settings_file.settings(home).mcp.servers}
    server = known.get(name)
    if server is None:
        raise unknown("MCP server", name, known, "there is none; add one with: hearthnet mcp add")
    settings_file.delete(home, server)
    terminal.result(json, {"removed": server.name}, f"removed: {_described(server)}")


@command.command("serve")
@home_option
def serve(home: Home) -> None:
    """Be an MCP server on stdin and stdout, for a program that starts this command.

    Its tools are what the mesh offers. Each call with an effect is shown to you through the program first,
    with all that would be sent. The node has to run: hearthnet up.
    """
    from hearthnet.gateway.mcp.server import serve_stdio

    asyncio.run(serve_stdio(home))


def _config(name: str, program: tuple[str, ...], options: dict[str, Any]) -> McpServerConfig:
    """Return the settings to write; raises a usage error for invalid ones."""
    import msgspec

    from hearthnet.core.config import McpServerConfig

    fields = {"name": name, "command": program, "timeout_seconds": options.pop("timeout"), **options}
    try:
        return msgspec.convert(fields, McpServerConfig)
    except msgspec.ValidationError as error:
        raise click.UsageError(str(error).partition(" - at `$")[0]) from error


def _check_program(name: str) -> None:
    """Check that the program exists on this computer.

    Raises:
        HearthNetError: `not_found` if it does not.
    """
    import shutil

    if "${" not in name and shutil.which(name) is None:
        raise HearthNetError(
            "not_found", f"there is no program {one_line(name)} here; install it, or give its path"
        )


async def _settled(home: Home, server: McpServerConfig) -> dict[str, Any]:
    """Return the server's state once tools or problem are known, or after a time limit."""
    end = asyncio.get_running_loop().time() + WAIT_SECONDS
    while True:
        state = (await _states(home, (server,)))[0]
        waits = (
            state["running"]
            and not state["tools"]
            and (not state["problem"] or _STARTING in state["problem"])
        )
        if not waits or asyncio.get_running_loop().time() >= end:
            return state
        await asyncio.sleep(_PAUSE_SECONDS)


async def _states(home: Home, servers: tuple[McpServerConfig, ...]) -> list[dict[str, Any]]:
    """Return each server with its tools; without tools if no node runs."""
    from hearthnet.bus.bus import Bus
    from hearthnet.core.node_state import read_node_state

    views: list[OfferView] = []
    try:
        async with await Bus.connect(home, name="cli mcp") as bus:
            notes = [one.note or "" for one in read_node_state(home).services if one.name == SERVICE]
            own = bus.peer.node_id
            views = [
                view for view in await bus.offers() if view.node == own and view.offer.service == SERVICE
            ]
            await bus.fetch_contracts(views)
    except HearthNetError as error:
        return [_state(server, [], error.message, running=False) for server in servers]
    missing = "" if notes else "the service mcp is not among those that run here"
    return [
        _state(server, views, missing or _problem(server, notes), running=not missing) for server in servers
    ]


def _problem(server: McpServerConfig, notes: list[str]) -> str:
    """Return the service's notes about this server, or about the settings."""
    lines = [line for note in notes for line in note.split("; ")]
    own, others = f"{server.name}: ", ("the MCP servers stay", "only ")
    return "; ".join(line.removeprefix(own) for line in lines if line.startswith((own, *others)))


def _state(server: McpServerConfig, views: list[OfferView], problem: str, *, running: bool) -> dict[str, Any]:
    from hearthnet.cli.commands.caps import contract_of

    tools = []
    for view in views:
        if view.params.get("server") == server.name:
            contract = contract_of(str(view.capability))
            tools.append(
                {
                    "name": view.params.get("tool"),
                    "capability": str(view.capability),
                    "summary": contract.summary if contract else "",
                    "confirmed": contract.side_effects if contract else True,
                }
            )
    return {
        "name": server.name,
        "command": list(server.command),
        "shared": server.share,
        "running": running,
        "problem": problem,
        "tools": sorted(tools, key=lambda tool: str(tool["name"])),
    }


def _show(state: dict[str, Any]) -> None:
    terminal.line(f"{one_line(state['name'])}: {one_line(' '.join(state['command']))}")
    if state["problem"]:
        terminal.line(f"  {one_line(state['problem'])}")
    elif not state["tools"]:
        terminal.line("  it offers no tool yet; see: hearthnet logs mcp")
    for tool in state["tools"]:
        asks = "asks first" if tool["confirmed"] else "only reads"
        terminal.line(f"  {one_line(tool['capability'])}  {asks}  {one_line(tool['summary'])}")


def _described(server: McpServerConfig) -> str:
    return one_line(f"{server.name}: {' '.join(server.command)}")
