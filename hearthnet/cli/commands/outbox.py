"""`hearthnet outbox`: calls that wait for the node.

See: docs/market.md, "While the node is away".
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from hearthnet.cli.input.local_call import on_bus
from hearthnet.cli.input.options import Commands, common_options
from hearthnet.cli.output import terminal
from hearthnet.cli.output.durations import format_time
from hearthnet.cli.output.text import one_line
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms

if TYPE_CHECKING:
    from hearthnet.bus.outbox import Outbox


@click.group("outbox", cls=Commands)
def command() -> None:
    """Calls that wait until the node can send them."""


@command.command("list")
@common_options
def list_calls(home: Home, json: bool) -> None:
    """List waiting calls, and those that could not be sent, with the reason."""
    now = now_ms()
    states = outbox_of(home).states(now)
    values = [
        {
            "client_id": state.call.id,
            "capability": state.call.capability,
            "input": state.call.body.get("input", {}),
            "time": state.call.time,
            "expires": state.call.expires,
            "code": state.code,
            "message": state.message,
        }
        for state in states
    ]
    rows = [
        (
            state.call.id,
            one_line(state.call.capability),
            one_line(str(state.call.body.get("input", {}).get("title", "-"))),
            one_line(state.message) or f"waits until {format_time(state.call.expires, now)}",
        )
        for state in states
    ]
    terminal.listing(json, values, ("client id", "capability", "title", "state"), rows, "nothing waits")


@command.command("remove")
@click.argument("client_id")
@common_options
def remove(client_id: str, home: Home, json: bool) -> None:
    """Withdraw a waiting call, or take away the notice of one that could not be sent."""
    asyncio.run(outbox_of(home).remove(client_id))
    terminal.result(json, {"client_id": client_id}, f"withdrawn: {client_id}")


@command.command("send")
@common_options
def send(home: Home, json: bool) -> None:
    """Send the waiting calls now. A node with the market's service does so by itself."""
    done = on_bus(home, lambda bus: outbox_of(home).deliver(bus.call, now_ms))
    terminal.result(
        json,
        {"sent": done},
        f"sent: {', '.join(done)}" if done else "nothing was sent; see: hearthnet outbox list",
    )


def outbox_of(home: Home) -> Outbox:
    """Return the outbox of the node in `home`, running or not."""
    from hearthnet.bus.outbox import Outbox
    from hearthnet.bus.session.keyring import load_identity

    return Outbox(home, load_identity(home.device_key))
