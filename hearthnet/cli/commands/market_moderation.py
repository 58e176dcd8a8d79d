"""`hearthnet market hide|unhide|mute|unmute`: posts taken out of sight, at all homes or for one person.

See: docs/market.md#hiding, docs/market.md#muting.
"""

from __future__ import annotations

from typing import Any, Final

import click

from hearthnet.cli.input.local_call import call_local_node, call_node
from hearthnet.cli.input.member_lookup import members, principal_name, resolve_member, roster_of
from hearthnet.cli.input.options import common_options
from hearthnet.cli.output import terminal
from hearthnet.core import ids
from hearthnet.core.home import Home

_WHY: Final = click.option("--reason", required=True, help="Why, in your words: everybody can read it.")
_NODE: Final = "ed25519:"
_GUEST: Final = click.option("--guest", metavar="NAME", help="The guest at that member's page who wrote it.")


@click.command("hide")
@click.argument("event_id")
@_WHY
@common_options
def hide(event_id: str, reason: str, home: Home, json: bool) -> None:
    """Hide a post from lists and searches at all homes.

    Only a trusted member can. All members see it with: hearthnet market list --hidden
    """
    changed(home, "hide", {"event_id": event_id, "reason": reason}, f"hidden: {event_id}", json)


@click.command("unhide")
@click.argument("event_id")
@_WHY
@common_options
def unhide(event_id: str, reason: str, home: Home, json: bool) -> None:
    """Show a hidden post again at all homes.

    For trusted members other than its author, and for the member who hid it.
    """
    changed(home, "unhide", {"event_id": event_id, "reason": reason}, f"shown again: {event_id}", json)


@click.command("mute")
@click.argument("member")
@_GUEST
@common_options
def mute(member: str, guest: str | None, home: Home, json: bool) -> None:
    """Leave the posts of MEMBER out of what you list and search.

    MEMBER is a name or an id; all computers of that person are meant. It is your choice alone. See also:
    hearthnet market list --muted
    """
    _mute(home, member, guest, muted=True, json=json)


@click.command("unmute")
@click.argument("member")
@_GUEST
@common_options
def unmute(member: str, guest: str | None, home: Home, json: bool) -> None:
    """Show you the posts of MEMBER again."""
    _mute(home, member, guest, muted=False, json=json)


def list_muted(home: Home, json: bool) -> None:
    """Print the authors whom the owner has muted, and how to take that back."""
    muted = call_local_node(home, "market.list@1.0", {"muted": True, "limit": 1})["muted"]
    if json:
        terminal.json_page({"muted": muted})
        return
    if not muted:
        terminal.line("nobody is muted; see: hearthnet market mute MEMBER")
        return
    roster = roster_of(home)
    rows = [
        (
            principal_name(one["author"] + (f"/{one['guest']}" if "guest" in one else ""), roster),
            one["at"],
            f"hearthnet market unmute {one['author']}"
            + (f" --guest {one['guest']}" if "guest" in one else ""),
        )
        for one in muted
    ]
    terminal.table(("author", "since", "to see their posts again"), rows)


def changed(home: Home, verb: str, fields: dict[str, Any], words: str, json: bool) -> None:
    """Call `market.<verb>` with a new client id, and print the result."""
    output = call_node(home, f"market.{verb}@1.0", {"client_id": ids.new_ulid(), **fields})
    terminal.result(json, output, words)


def names_of(home: Home) -> dict[str, str]:
    """Return the names of the members by their ids."""
    return {member.node_id: member.name for member in members(roster_of(home))}


def _mute(home: Home, member: str, guest: str | None, *, muted: bool, json: bool) -> None:
    # A full id is taken as it is: somebody who has left the community can be muted, too.
    is_id = member.startswith(_NODE)
    author = member if is_id else resolve_member(member, members(roster_of(home))).node_id
    fields = {"author": author, "muted": muted, **({"guest": guest} if guest else {})}
    output = call_local_node(home, "market.mute@1.0", fields)
    name = principal_name(f"{author}/{guest}" if guest else author, roster_of(home))
    words = f"muted: {name}" if muted else f"shown again: posts of {name}"
    terminal.result(json, {"author": author, **({"guest": guest} if guest else {}), **output}, words)
