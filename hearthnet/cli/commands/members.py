"""`hearthnet members` and `hearthnet revoke`: the members of the community, and their levels.

See: docs/protocol/community.md#removals, docs/protocol/community.md#agreements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from hearthnet.cli.input.local_call import call_local_node
from hearthnet.cli.input.member_lookup import display_name, members, resolve_member, roster_of
from hearthnet.cli.input.options import common_options
from hearthnet.cli.output import terminal
from hearthnet.cli.output.durations import format_time
from hearthnet.cli.output.text import counted, one_line
from hearthnet.core import ids
from hearthnet.core.home import Home
from hearthnet.core.times import from_rfc3339, now_ms

if TYPE_CHECKING:
    from hearthnet.trust.community.roster import Roster

_HEADINGS: Final = ("name", "id", "level", "since", "")


@click.group("members", invoke_without_command=True)
@common_options
@click.pass_context
def command(context: click.Context, home: Home, json: bool) -> None:
    """Show the members of the community; works without a running node.

    \b
    hearthnet members
    hearthnet members promote Kitchen trusted
    """
    if context.invoked_subcommand is None:
        _report(home, json)


def _report(home: Home, json: bool) -> None:
    from hearthnet.bus.session.keyring import load_identity
    from hearthnet.core.node_state import running_pid

    roster, own = roster_of(home), load_identity(home.device_key).node_id
    running = running_pid(home) is not None
    if json:
        terminal.json_page(_as_json(roster, own, running))
        return
    _show(roster, own)
    if roster.is_revoked(own):
        terminal.info("this node was put out: only a new invite for its id brings it back")
    if not running:
        terminal.info("no node runs here: this is what it knew when it last ran")


def _as_json(roster: Roster, own: str, running: bool) -> dict[str, Any]:
    """Return the roster, without the data that only servers need."""
    import msgspec

    from hearthnet.cli.commands.invite import invite_as_json, open_invites

    return {
        "community_id": roster.community_id,
        "name": roster.name,
        "created_at": roster.created_at,
        "version": roster.version,
        "node_id": own,
        "running": running,
        "policy": msgspec.to_builtins(roster.policy),
        "members": [
            {
                "node_id": one.node_id,
                "short_id": ids.short_id(one.node_id),
                "display_name": roster.shown_name(one.node_id),
                "level": one.level,
                "added_at": one.added_at,
            }
            for one in roster.members
        ],
        "revoked": msgspec.to_builtins(roster.revoked),
        "invites": [invite_as_json(invite) for invite in open_invites(roster)],
    }


def _show(roster: Roster, own: str) -> None:
    from hearthnet.cli.commands.invite import open_invites

    terminal.line(f"{one_line(roster.name)}, {counted(len(roster.members), 'member')}\n")
    terminal.table(
        _HEADINGS,
        [
            (
                display_name(roster.shown_name(one.node_id)),
                ids.short_id(one.node_id),
                one.level,
                format_time(from_rfc3339(one.added_at), now_ms()),
                "this node" if one.node_id == own else "",
            )
            for one in roster.members
        ],
    )
    if waiting := open_invites(roster):
        terminal.line(f"\n{counted(len(waiting), 'open invite')}; see: hearthnet invite list")
    if roster.revoked:
        terminal.line(f"\n{len(roster.revoked)} put out; see: hearthnet members --json")


@command.command()
@click.argument("node")
@click.argument("level", type=click.Choice(("trusted", "anchor")))
@common_options
def promote(node: str, level: str, home: Home, json: bool) -> None:
    """Raise a member to trusted or anchor.

    NODE is its name or id. You need at least that level yourself.
    """
    known = resolve_member(node, members(roster_of(home)))
    fields = {"target_node_id": known.node_id, "new_level": level}
    output = call_local_node(home, "community.promote@1.0", fields)
    terminal.result(json, output, f"{known} is {level} now")


@command.command()
@click.argument("node", required=False)
@click.argument("level", required=False, type=click.Choice(("member", "trusted")))
@click.option(
    "--sign", "proposal", metavar="TEXT", help="Agree to what another member proposed; - reads stdin."
)
@click.option("--yes", "confirmed", is_flag=True, help="Do not ask.")
@common_options
def demote(
    node: str | None, level: str | None, proposal: str | None, confirmed: bool, home: Home, json: bool
) -> None:
    """Lower a member to trusted or member.

    NODE is its name or id. If the community requires several signatures, this prints a text for the others to
    sign.
    """
    from hearthnet.cli.workflows import cosigning

    signer = cosigning.Demoting(home, confirmed=confirmed, json=json)
    if proposal is not None and node is None:
        signer.sign(proposal)
    elif proposal is None and node is not None and level is not None:
        signer.propose(node, level)
    else:
        raise click.UsageError("name the member and its new level, or pass --sign and the text of a proposal")


_REASONS: Final = ("compromised", "inactive", "policy_violation", "other")


@click.command("revoke")
@click.argument("node", required=False)
@click.option("--reason", type=click.Choice(_REASONS), default="other", show_default=True)
@click.option(
    "--sign", "proposal", metavar="TEXT", help="Agree to what another member proposed; - reads stdin."
)
@click.option("--with-invited", is_flag=True, help="Put those out as well who came by its invites.")
@click.option("--yes", "confirmed", is_flag=True, help="Do not ask.")
@common_options
def revoke(
    node: str | None,
    reason: str,
    proposal: str | None,
    with_invited: bool,
    confirmed: bool,
    home: Home,
    json: bool,
) -> None:
    """Put a member out of the community.

    NODE is its name or id. Its connections are cut within seconds, and the other members refuse its calls. If
    the community requires several signatures, this prints a text for the others to sign. Those who came by
    its invites, or by invites of these, are listed, and put out as well if you say so.

    \b
    hearthnet revoke Kitchen --reason compromised --with-invited
    """
    from hearthnet.cli.workflows import cosigning

    if (node is None) == (proposal is None):
        raise click.UsageError("name the member, or pass --sign and the text of a proposal")
    signer = cosigning.Revoking(home, confirmed=confirmed, json=json)
    if proposal is not None:
        signer.sign(proposal)
    elif node is not None:
        signer.propose_line(node, reason, with_invited=with_invited)
