"""`hearthnet grants`: standing grants for some calls of one tool.

See: docs/protocol/approvals.md#standing-grant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from hearthnet.cli.input.local_call import call_local_node, on_bus
from hearthnet.cli.input.member_lookup import members, resolve_member, roster_of
from hearthnet.cli.input.options import Commands, common_options, only_option
from hearthnet.cli.output import terminal
from hearthnet.cli.output.durations import Span, format_time
from hearthnet.cli.output.text import as_json, one_line
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms

if TYPE_CHECKING:
    from hearthnet.agent.runtime.grant_store import StoredGrant
    from hearthnet.agent.tools.toolbox import BoundTool
    from hearthnet.bus.bus import Bus

_DAY: Final = 86_400


@click.group("grants", cls=Commands)
def command() -> None:
    """Agree once to several calls of a tool, for a while.

    \b
    hearthnet grants add market_post --uses 5 --for 8h --only input.category=offer

    A model may then call it without a question, until it has read words of other people: from then on you are
    asked each time. A single refusal ends it for that conversation.
    """


@command.command()
@click.argument("tool")
@click.option(
    "--uses", type=click.IntRange(min=1), default=1, show_default=True, help="For how many calls at most."
)
@click.option("--for", "seconds", type=Span(1, _DAY), help="For how long, up to 24h; else until midnight.")
@only_option
@click.option("--node", metavar="NODE", help="The member that carries it out; else the one that offers it.")
@common_options
def add(
    tool: str,
    uses: int,
    seconds: int | None,
    only: tuple[str, ...],
    node: str | None,
    home: Home,
    json: bool,
) -> None:
    """Grant calls of TOOL, a built-in tool with side effects such as market_post."""
    from hearthnet.agent.runtime.grant_store import GrantBook, new_entry
    from hearthnet.cli.commands.token import constraints_of

    bound = _tool(tool)
    chosen = resolve_member(node, members(roster_of(home))).node_id if node is not None else ""
    now = now_ms()
    until = now + seconds * 1000 if seconds is not None else _midnight(now)
    constraints = constraints_of(only)

    async def signed(bus: Bus) -> StoredGrant:
        provider, peer = await _provider(bus, bound, chosen), bus.peer
        limits = {"uses": uses, "now_ms": now, "until_ms": until}
        return new_entry(peer.identity, peer.community, bound, provider, constraints, **limits)

    entry = on_bus(home, signed, "cli grants")
    GrantBook(home.standing_grants).add(entry, now)
    row = _row(entry, now)
    terminal.result(
        json, row, f"granted {tool}, {row['uses_left']} times until {format_time(until, now)}: {row['id']}"
    )


@command.command(name="list")
@common_options
def list_(home: Home, json: bool) -> None:
    """List all grants and their state."""
    from hearthnet.agent.runtime.grant_store import GrantBook

    now = now_ms()
    rows = [_row(entry, now) for entry in GrantBook(home.standing_grants).entries()]
    if json:
        terminal.json_page({"grants": rows})
    elif not rows:
        terminal.line("nothing is granted; every side effect is asked about")
    for row in () if json else rows:
        left = f"{row['uses_left']} of {row['max_uses']} left"
        terminal.line(f"{row['id']}  {one_line(row['tool'])}  {row['state']}  {left}, until {row['until']}")
        for name, values in row["only"].items():
            terminal.line(f"  only {one_line(name)} {' or '.join(as_json(value) for value in values)}")


@command.command()
@click.argument("grant")
@common_options
def revoke(grant: str, home: Home, json: bool) -> None:
    """Take the grant with this id back, here and, while the node runs, at every member."""
    from hearthnet.agent.runtime.grant_store import GrantBook

    GrantBook(home.standing_grants).remove(grant)
    try:
        call_local_node(home, "auth.token.revoke@1.0", {"token_id": grant, "reason": "manual"})
        is_announced = True
    except HearthNetError as error:
        is_announced = False
        terminal.info(f"it is gone here, but the other members were not told: {error.message}")
    terminal.result(json, {"id": grant, "told_others": is_announced}, f"revoked {grant}")


def _tool(name: str) -> BoundTool:
    """Return the built-in tool `name` as a run uses it.

    Raises:
        HearthNetError: `not_found` for an unknown name, with the nearest ones.
    """
    from hearthnet.agent.tools.builtin import builtin_tools
    from hearthnet.agent.tools.toolbox import Toolbox

    return Toolbox(builtin_tools([name])).bound(name)


def _midnight(now: int) -> int:
    """Return the end of the day, in milliseconds since the epoch."""
    from datetime import datetime, time, timedelta

    day = datetime.fromtimestamp(now / 1000).date() + timedelta(days=1)
    return min(int(datetime.combine(day, time()).timestamp() * 1000), now + _DAY * 1000)


async def _provider(bus: Bus, tool: BoundTool, node: str) -> str:
    """Return the node that the grant is for: the named one, else this one, else the only one."""
    providers = sorted({view.node for view in await bus.offers(tool.capability)})
    if node and node in providers:
        return node
    if not node and bus.peer.node_id in providers:
        return bus.peer.node_id
    if not node and len(providers) == 1:
        return providers[0]
    found = (
        f"{len(providers)} members offer it; name one with --node" if providers else "nobody offers it now"
    )
    raise HearthNetError("not_found", f"a grant of {tool.definition.name} is for one member: {found}")


def _row(entry: StoredGrant, now: int) -> dict[str, Any]:
    """Return one grant, for scripts and for people."""
    from hearthnet.agent.runtime.grant_store import tool_digest

    try:
        state = entry.standing(now, tool_digest(_tool(entry.tool)))
    except HearthNetError:
        state = "changed"
    grant = entry.grant
    return {
        "id": grant.id,
        "tool": entry.tool,
        "capability": grant.capability,
        "provider": grant.provider,
        "only": grant.params_constraints,
        "state": state,
        "max_uses": grant.max_uses,
        "uses_left": grant.max_uses - entry.used,
        "expires_at": grant.expires,
        "until": format_time(grant.expires, now),
    }
