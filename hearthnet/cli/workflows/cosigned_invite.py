"""Invites that several members have to agree to.

See: docs/protocol/community.md#agreements, docs/decisions/0046.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from hearthnet.cli.input.member_lookup import KnownMember, members
from hearthnet.cli.output import terminal
from hearthnet.cli.output.durations import format_time
from hearthnet.cli.output.text import one_line
from hearthnet.cli.workflows.cosigning import Signer
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.ids import new_ulid
from hearthnet.core.times import now_ms, rfc3339
from hearthnet.trust.community.proposals import Proposal

if TYPE_CHECKING:
    from hearthnet.trust.community.invites import InviteText
    from hearthnet.trust.community.roster import Roster

if TYPE_CHECKING:
    from hearthnet.trust.community.roster import Roster

_LONGEST_NAME: Final = 64


def proposal_for(roster: Roster, node: str, name: str, expires: int) -> Proposal:
    """Return the proposal to invite the node `node` (a full id), valid for `expires` seconds.

    Raises:
        HearthNetError: `bad_request` for an invalid node id, and for a name that is too long.
    """
    ids.public_key(node)
    if len(name) > _LONGEST_NAME:
        raise HearthNetError("bad_request", f"a name has at most {_LONGEST_NAME} characters")
    return Proposal(
        event_type="community.member.invited",
        community_id=roster.community_id,
        target_node_id=node,
        what=name,
        client_id=new_ulid(),
        expires_at=(now_ms() // 1000 + expires) * 1000,
        recalls=roster.revocation_of(node),
    )


class Inviting(Signer):
    """The invitation of a node."""

    event_type = "community.member.invited"
    capability = "community.invite@1.0"

    def known(self, proposal: Proposal) -> KnownMember:
        """Return the node that is invited.

        Raises:
            HearthNetError: `expired` if the invite would be over; `bad_request` if the node is a member
                already.
        """
        if proposal.expires_at <= now_ms():
            raise HearthNetError("expired", "the proposal has expired; ask for a new one")
        for one in members(self.roster):
            if one.node_id == proposal.target_node_id:
                raise HearthNetError("bad_request", f"{one} is a member already")
        return KnownMember(proposal.target_node_id, proposal.what)

    def question(self, proposal: Proposal, known: KnownMember) -> str:
        """Return the question, with the full id, since anyone can choose the name.

        It also says whether the node was removed before.
        """
        ends = format_time(proposal.expires_at, now_ms())
        question = f"Let {known.name} {known.node_id} join {one_line(self.roster.name)} until {ends}?"
        for gone in self.roster.revoked:
            if gone.node_id == known.node_id:
                return f"{question} It was put out ({one_line(gone.reason)}) and comes back by this."
        return question

    def call(self, proposal: Proposal) -> dict[str, Any]:
        """Return target, name and expiry."""
        named = {"display_name": proposal.what} if proposal.what else {}
        return {
            **named,
            "invitee_node_id": proposal.target_node_id,
            "expires_at": rfc3339(proposal.expires_at),
        }

    def show(self, proposal: Proposal, output: dict[str, Any], known: KnownMember) -> None:
        """Print the invite, as `invite create` does."""
        show_new(output, f"until {format_time(proposal.expires_at, now_ms())}")


def show_new(output: dict[str, Any], good: str) -> None:
    """Print a new invite as text and QR code, with instructions; `good` is its validity."""
    from hearthnet.cli.output import qr
    from hearthnet.trust.community import invites

    text = one_line(str(output["invite"]))
    terminal.line(text)
    qr.show(text)
    sys.stdout.flush()
    terminal.info(
        f"good for one home, {good}. There, its node stopped: hearthnet invite redeem\n"
        f"take it back with: hearthnet invite withdraw {one_line(str(output['event_id']))}"
    )
    if _on_loopback(invites.decode(text)):
        terminal.info(
            "only homes on this computer can use it: to be reached by others, set host in [community] of "
            "hearthnet.toml, start the node again and make a new invite"
        )


def _on_loopback(invite: InviteText) -> bool:
    from hearthnet.supervisor.nats.address import parse

    return parse(invite.address).on_loopback
