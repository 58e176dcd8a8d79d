"""`hearthnet invite`: admits another home to the community (docs/decisions/0045)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from hearthnet.cli.input.local_call import call_local_node
from hearthnet.cli.input.member_lookup import display_name, members, roster_of
from hearthnet.cli.input.options import Commands, common_options
from hearthnet.cli.output import terminal
from hearthnet.cli.output.durations import Span, format_duration, format_time
from hearthnet.cli.output.suggest import ambiguous
from hearthnet.cli.output.text import counted, one_line
from hearthnet.cli.workflows.cosigning import show_new
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms, rfc3339

if TYPE_CHECKING:
    from hearthnet.supervisor.community.join import JoinOutcome
    from hearthnet.trust.community.roster import Invite, Roster

_WEEK: Final = 7 * 86_400
_HEADINGS: Final = ("invite", "for", "made by", "until")
_TEXT_BYTES: Final = 8192


@click.group("invite", cls=Commands)
def command() -> None:
    """Take another home into the community, or join one.

    \b
    hearthnet invite create --name Kitchen    here, where the node runs
    hearthnet invite redeem                   over there, while its node is stopped
    """


@command.command()
@click.option(
    "--name", metavar="NAME", help="For whom it is: what the others call a home that has no name of its own."
)
@click.option("--for", "node", metavar="NODE_ID", help="Only the node with this full id can use it.")
@click.option(
    "--expires", type=Span(60, _WEEK), default="24h", show_default=True, help="For how long, up to 7d."
)
@common_options
def create(name: str | None, node: str | None, expires: int, home: Home, json: bool) -> None:
    """Make an invite: a text, and on a terminal a QR code of it.

    Anyone who holds the text can join, once, until it expires. Hand it over as you would a key. If the
    community requires several signatures, name the node with --for; this then prints a text for the others to
    sign.
    """
    if node is not None and _propose(home, node, name or "", expires, json):
        return
    fields: dict[str, Any] = {"ttl_seconds": expires}
    if name is not None:
        fields["display_name"] = name
    if node is not None:
        fields["invitee_node_id"] = node
    output = call_local_node(home, "community.invite@1.0", fields)
    terminal.result(json, output, lambda: show_new(output, f"{format_duration(expires)} long"))


def _propose(home: Home, node: str, name: str, expires: int, json: bool) -> bool:
    """Start an invite that takes several signatures; return False if one is enough."""
    from hearthnet.cli.workflows.cosigning import Inviting, proposal_for

    inviting = Inviting(home, confirmed=True, json=json)
    proposal = proposal_for(inviting.roster, node, name, expires)
    if proposal.needed(inviting.roster) == 1:
        return False
    inviting.decide(proposal)
    return True


@command.command()
@click.argument("proposal", metavar="TEXT")
@click.option("--yes", "confirmed", is_flag=True, help="Do not ask.")
@common_options
def sign(proposal: str, confirmed: bool, home: Home, json: bool) -> None:
    """Agree to an invite that another member proposed.

    TEXT is the proposal that you received; - reads stdin. The member whose signature is the last one needed
    gets the invite, and admits the newcomer.
    """
    from hearthnet.cli.workflows.cosigning import Inviting

    Inviting(home, confirmed=confirmed, json=json).sign(proposal)


@command.command("list")
@common_options
def list_invites(home: Home, json: bool) -> None:
    """List the open invites; works without a running node."""
    roster = roster_of(home)
    found = open_invites(roster)
    names, now = {one.node_id: one.name for one in members(roster)}, now_ms()
    rows = [
        (
            one.event_id,
            display_name(one.display_name or _node_of(one)),
            names.get(one.inviter) or ids.short_id(one.inviter),
            format_time(one.expires_at, now),
        )
        for one in found
    ]
    empty = "there is no open invite; make one with: hearthnet invite create"
    terminal.listing(json, [invite_as_json(invite) for invite in found], _HEADINGS, rows, empty)


def open_invites(roster: Roster) -> list[Invite]:
    """Return the invites that can still be used, the first to expire first."""
    now = now_ms()
    return sorted((one for one in roster.invites if one.expires_at > now), key=lambda one: one.expires_at)


def invite_as_json(invite: Invite) -> dict[str, Any]:
    """Return an open invite as `invite list --json` prints it, without its secret."""
    return {
        "event_id": invite.event_id,
        "display_name": invite.display_name,
        "invitee_node_id": invite.invitee_node_id or None,
        "inviter": invite.inviter,
        "expires_at": rfc3339(invite.expires_at),
    }


def _node_of(invite: Invite) -> str:
    """Return the short id of the node that it names, empty if any node can use it."""
    return ids.short_id(invite.invitee_node_id) if invite.invitee_node_id else ""


@command.command()
@click.argument("invite")
@common_options
def withdraw(invite: str, home: Home, json: bool) -> None:
    """Take back an invite that has not been used yet.

    INVITE is its id, the name it was made for, or its text.
    """
    chosen = _chosen(roster_of(home), invite.strip())
    output = call_local_node(home, "community.withdraw@1.0", {"invite_event_id": chosen.event_id})
    terminal.result(json, output, f"withdrawn {chosen.event_id}; nobody can join with it any more")


def _chosen(roster: Roster, text: str) -> Invite:
    """Return the open invite with this id, name or text.

    Raises:
        HearthNetError: `not_found` if there is none; `bad_request` if several have that name.
    """
    from hearthnet.trust.community import invites

    key = ""
    if text.startswith((invites.SCHEME, invites.DEVICE_SCHEME)):
        decode = invites.decode if text.startswith(invites.SCHEME) else invites.decode_device
        key = decode(text).key().node_id
    found = [
        one
        for one in open_invites(roster)
        if text in (one.event_id, one.display_name, display_name(one.display_name)) or one.invite_key == key
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise ambiguous("invite", text, [one.event_id for one in found])
    raise HearthNetError(
        "not_found", "there is no such open invite: it was used, withdrawn or has expired, or never was"
    )


@command.command()
@click.argument("text", required=False)
@common_options
def redeem(text: str | None, home: Home, json: bool) -> None:
    """Join the community that an invite is from. The node must be stopped.

    TEXT is the invite. Without it, this prompts for it or reads it from a pipe, so that it stays out of the
    shell's history.
    """
    from hearthnet.supervisor.community.join import redeem as join

    joined = join(home, read_invite(text), lambda line: terminal.info(one_line(line)))
    terminal.result(
        json,
        joined_as_json(joined),
        f"joined {one_line(joined.name)} as {display_name(joined.display_name)}, "
        f"{counted(joined.members, 'member')} with this one; start the node with: hearthnet up",
    )


def joined_as_json(joined: JoinOutcome) -> dict[str, Any]:
    """Return the outcome of a join as `--json` prints it."""
    page = joined._asdict() | {"moved_aside": None if joined.moved_aside is None else str(joined.moved_aside)}
    return page if joined.person else {name: value for name, value in page.items() if name != "person"}


def read_invite(text: str | None, what: str = "invite") -> str:
    """Return the invite from command line, terminal or pipe, without pasted white space."""
    if text is None or text == "-":
        screen = terminal.screen()
        if screen is not None:
            # Shown while it is pasted: it is valid once, and a person can see that it is complete.
            screen.write(f"paste the {what}: ")
            screen.flush()
        text = sys.stdin.readline(_TEXT_BYTES) if screen is not None else sys.stdin.read(_TEXT_BYTES)
    return "".join(text.split())
