"""`hearthnet door`: servers at which the homes of the community meet.

See: docs/operations.md#doors, docs/decisions/0223.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from hearthnet.cli.input.local_call import call_local_node, on_bus, running_node
from hearthnet.cli.input.member_lookup import display_name, members, resolve_member, roster_of
from hearthnet.cli.input.options import Commands, common_options
from hearthnet.cli.output import terminal
from hearthnet.cli.output.durations import format_time
from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.core.home import Home
from hearthnet.core.times import from_rfc3339, now_ms

if TYPE_CHECKING:
    from hearthnet.bus.bus import Bus
    from hearthnet.core.node_state import NodeState
    from hearthnet.supervisor.nats.address import Address
    from hearthnet.supervisor.nats.server_config import Certificate
    from hearthnet.trust.community.roster import Roster

_HEADINGS: Final = ("home", "address", "for doors", "since", "")
_ROUTE_PORT: Final = 7423
_CHECK: Final = "community.door.check@1.0"
_MOST_HOMES: Final = 3
_OPEN_SECONDS: Final = 15.0
_PAUSE_SECONDS: Final = 0.1


class OpenedDoor(NamedTuple):
    """A door that was opened.

    `reached_from` is the node from which it was tried, None if no other home was linked. `state` is
    "starting" if it does not run after some seconds.
    """

    event_id: str
    address: str
    route: str
    reached_from: str | None
    state: str


@click.group("door", cls=Commands)
def command() -> None:
    """Let the homes of the community meet at this computer, too.

    \b
    hearthnet door open
    hearthnet door list
    hearthnet door close
    """


@command.command("open")
@click.option(
    "--route-port",
    type=click.IntRange(1, 65535),
    help=f"The port for other doors; default: {_ROUTE_PORT}, or a free one.",
)
@click.option("--untested", is_flag=True, help="Open it even if no other home reaches it.")
@common_options
def open_(route_port: int | None, untested: bool, home: Home, json: bool) -> None:
    """Open a door here, if another home reaches it. You need to be trusted.

    It listens at the address and port of [community] in hearthnet.toml. The node is at its own services again
    after a second or two.
    """
    opened = _open_door(home, route_port, untested)
    terminal.result(json, opened._asdict(), lambda: _print_opened(opened))


def _print_opened(opened: OpenedDoor) -> None:
    state = "open" if opened.state == "open" else "not open yet; see: hearthnet status"
    terminal.line(f"the door at {opened.address} is {state}; other doors link to it at {opened.route}")
    if not opened.reached_from:
        terminal.info("nobody has tried whether other homes reach it")


def _open_door(home: Home, route_port: int | None, untested: bool) -> OpenedDoor:
    """Open the door of the node that runs in `home`, or move it to its present address.

    Other doors link to it at `route_port`; without one at the port it has, else the default or a free one.

    Raises:
        HearthNetError: `bad_request` for settings with which no other home reaches it; `unauthorized` for a
            node that is not trusted, or that is linked to a hub which is no door; `partition` if other homes
            do not reach it, unless `untested`; with exit status 3 if no node runs.
    """
    from hearthnet.bus.session.keyring import load_identity
    from hearthnet.core.config_loader import load_config
    from hearthnet.core.node_state import read_node_state
    from hearthnet.supervisor.nats import certificate
    from hearthnet.supervisor.nats.address import Address, parse
    from hearthnet.supervisor.nats.leaf_links import announced_address, home_certificate

    node, roster, config = read_node_state(home), roster_of(home), load_config(home)
    own = load_identity(home.device_key).node_id
    _check_may_open(roster, own, node)
    place = announced_address(home, config.community, node.server.leaf_port)
    if place.port != node.server.leaf_port:
        raise HearthNetError(
            "bad_request",
            f"a door listens at the port that its address names: set [community] port = {place.port} in "
            f"{home.config_file} and restart the node",
        )
    files, _ = home_certificate(home, place.host)
    key = certificate.key_id(files.key)
    here = next((one for one in roster.doors if one.node_id == own), None)
    port = 0 if here is None else parse(here.route).port
    if node.door == "open" and route_port in (None, port):  # the door itself listens there
        fields = {"address": str(place), "route": str(Address(place.host, port)), "key": key}
        reached = on_bus(home, lambda bus: _reached(bus, fields, untested))
    else:
        ports = (route_port,) if route_port else (_ROUTE_PORT, 0)
        fields, reached = asyncio.run(_tried(home, config.community.host, place, files, ports, untested))
    output = call_local_node(home, "community.door.open@1.0", fields)
    return OpenedDoor(output["event_id"], fields["address"], fields["route"], reached, _wait_until_open(home))


def _check_may_open(roster: Roster, own: str, node: NodeState) -> None:
    if not roster.stands_alone(own):
        raise HearthNetError(
            "unauthorized", "a trusted member opens a door; see: hearthnet members promote --help"
        )
    if not roster.doors and node.server.upstream == "linked":
        raise HearthNetError(
            "unauthorized",
            f"all homes meet at {node.server.address}, which is no door yet: run hearthnet door open at that "
            "home first, so that homes which know it alone stay with the others",
        )


async def _tried(
    home: Home, host: str, place: Address, files: Certificate, ports: tuple[int, ...], untested: bool
) -> tuple[dict[str, str], str | None]:
    """Return the input of the call that opens the door, and the node from which it was reached."""
    from hearthnet.bus.bus import Bus
    from hearthnet.supervisor.nats import certificate
    from hearthnet.supervisor.nats.address import Address

    async with _route_listener(host, files, ports) as port:
        fields = {
            "address": str(place),
            "route": str(Address(place.host, port)),
            "key": certificate.key_id(files.key),
        }
        async with await Bus.connect(home, name="cli") as bus:
            return fields, await _reached(bus, fields, untested)


async def _reached(bus: Bus, fields: dict[str, Any], untested: bool) -> str | None:
    """Return the first other home that reaches the door.

    Raises:
        HearthNetError: `partition` with the reasons if none of them does, unless `untested`.
    """
    views = await bus.offers(_CHECK)
    nodes = list(dict.fromkeys(view.node for view in views if view.node != bus.peer.node_id))
    reasons = []
    for node in nodes[:_MOST_HOMES]:
        try:
            reply = await bus.call(_CHECK, {"params": {}, "input": fields}, node=node)
        except HearthNetError as error:
            reasons.append(error.message)
            continue
        if reply.output["reached"]:
            return node
        reasons.append(str(reply.output["reason"]))
    if reasons and not untested:
        raise Unavailable(
            f"other homes do not reach a door here ({reasons[0]}): homes and doors connect to "
            f"{fields['address']} and {fields['route']}; see docs/operations.md, Doors, or --untested",
            rule="unreached",
        )
    return None


@contextlib.asynccontextmanager
async def _route_listener(host: str, files: Certificate, ports: tuple[int, ...]) -> AsyncIterator[int]:
    """Listen with TLS as the door's routes will, at the first free one of `ports`; yield that port.

    Raises:
        HearthNetError: `bad_request` if none is free.
    """
    import ssl

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*files)
    for port in ports:
        try:
            server = await asyncio.start_server(
                lambda _reader, writer: writer.close(), host, port, ssl=context
            )
        except OSError:
            continue
        async with server:
            yield int(server.sockets[0].getsockname()[1])
        return
    raise HearthNetError(
        "bad_request", f"port {ports[0]} is taken, or {host} is no address of this computer; see --route-port"
    )


def _wait_until_open(home: Home) -> str:
    """Return the state of the door, when it is open or after some seconds."""
    from hearthnet.core.node_state import read_node_state

    end = time.monotonic() + _OPEN_SECONDS
    while (state := read_node_state(home).door) != "open" and time.monotonic() < end:
        time.sleep(_PAUSE_SECONDS)
    return state or "starting"


@command.command()
@click.argument("node", required=False)
@common_options
def close(node: str | None, home: Home, json: bool) -> None:
    """Close the door of this home, or that of NODE, a name or id, if you are trusted.

    The homes at it go on to other doors.
    """
    from hearthnet.bus.session.keyring import load_identity

    roster = roster_of(home)
    known = members(roster)
    own = load_identity(home.device_key).node_id
    target = resolve_member(node, known).node_id if node else own
    output = call_local_node(home, "community.door.close@1.0", {"node_id": target})
    terminal.result(json, output, "the door is closed")


@command.command("list")
@common_options
def list_(home: Home, json: bool) -> None:
    """List the open doors; works without a running node."""
    from hearthnet.bus.session.keyring import load_identity

    roster, own = roster_of(home), load_identity(home.device_key).node_id
    node = running_node(home)
    state = "" if node is None else node.door
    page: list[dict[str, Any]] = [
        {
            "node_id": one.node_id,
            "display_name": roster.shown_name(one.node_id),
            "address": one.address,
            "route": one.route,
            "opened_at": one.opened_at,
            "state": (state or None) if one.node_id == own else None,
        }
        for one in roster.doors
    ]
    rows = [
        (
            display_name(one["display_name"]),
            one["address"],
            one["route"],
            format_time(from_rfc3339(one["opened_at"]), now_ms()),
            "this node" if one["node_id"] == own else "",
        )
        for one in page
    ]
    empty = "no door is open; open one here with: hearthnet door open"
    terminal.listing(json, page, _HEADINGS, rows, empty)
