"""Events that promote, demote or revoke a member, withdraw an invite or set the policy.

Where several members must agree, enough of them have signed the proposal first. The event records the client
id of the call that made it, so a repeated call finds the first event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from hearthnet import HearthNetError
from hearthnet.core import now_ms
from hearthnet.trust import (
    CommunityAuthor,
    CommunityEvent,
    Demoted,
    Identity,
    Promoted,
    Proposal,
    Revoked,
    Roster,
    Withdrawn,
)
from hearthnet_auth.schemas import PolicyInput, RevokeInput, RoleInput, WithdrawInput, invalid


def require_signatures(held: Roster, own: Identity, proposal: Proposal) -> None:
    """Raise unless enough members, this node included, have signed `proposal`.

    A node that may not sign passes: the validity of the event that it makes is checked elsewhere.

    Raises:
        HearthNetError: `unauthorized`, with the number of required signatures, if fewer have signed;
            `invalid_signature` if one of them has signed something else.
    """
    signed = proposal.sign(own).check(held)
    needed = proposal.needed(held)
    if own.node_id not in signed or len(signed) >= needed:
        return
    invites = proposal.event_type == "community.member.invited"
    signers = "members who may invite" if invites else "trusted members"
    raise HearthNetError(
        "unauthorized",
        f"it takes {needed} signatures of {signers} and has {len(signed)}; pass a proposal round",
        details={"needed": needed, "signed": len(signed)},
    )


Kind = Literal["community.member.promoted", "community.member.demoted", "community.member.revoked"]
PROMOTED: Final = "community.member.promoted"
DEMOTED: Final = "community.member.demoted"
REVOKED: Final = "community.member.revoked"


def change_role(held: Roster, own: Identity, kind: Kind, wanted: RoleInput | RevokeInput) -> CommunityEvent:
    """Return the event that promotes, demotes or revokes a member, or that of an earlier call.

    Raises:
        HearthNetError: as for the command of `trust.community.commands`; `bad_request` if the client id was
            used for something else; `unauthorized`, with the number of required signatures, if too few have
            signed a demotion or the revocation of a present member.
    """
    target = wanted.target_node_id
    what = wanted.reason if isinstance(wanted, RevokeInput) else wanted.new_level
    earlier = made(held, own, wanted.client_id)
    if earlier is not None:
        return _same(earlier, kind, target, what)
    if kind != PROMOTED and not (kind == REVOKED and held.is_revoked(target)):
        _check_signatures(held, own, kind, wanted, what)
    author = CommunityAuthor(held, own)
    commands: dict[Kind, Callable[..., CommunityEvent]] = {
        PROMOTED: author.promote,
        DEMOTED: author.demote,
        REVOKED: author.revoke,
    }
    client_id, co_signers = wanted.client_id, wanted.co_signers
    return commands[kind](target, what, client_id=client_id, now_ms=now_ms(), co_signers=co_signers)


def withdraw(held: Roster, own: Identity, wanted: WithdrawInput) -> CommunityEvent:
    """Return the event that withdraws an invite, or the one by which this node did so before."""
    invites = {event.hash for event in held.events if event.event_id == wanted.invite_event_id}
    for event in held.events:
        match event.content:
            case Withdrawn(invite_event_hash=invite) if invite in invites and event.author == own.node_id:
                return event
    return CommunityAuthor(held, own).withdraw(wanted.invite_event_id, now_ms())


def set_policy(held: Roster, root: Identity, wanted: PolicyInput) -> CommunityEvent:
    """Return the event with the policy that `wanted` changes.

    If the policy is in force already and an event of the root key set it, that event is returned.
    """
    changes = {name: value for name, value in msgspec.structs.asdict(wanted).items() if value is not None}
    policy = msgspec.structs.replace(held.policy, **changes)
    if policy == held.policy:
        for event in reversed(held.events):
            if event.event_type == "community.policy.updated" and not held.flaw(event):
                return event
    return CommunityAuthor(held, root).set_policy(policy, now_ms())


def made(held: Roster, own: Identity, client_id: str) -> CommunityEvent | None:
    """Return the event that a call with this client id made, or None."""
    for event in held.events:
        match event.content:
            case Promoted(client_id=made_by) | Demoted(client_id=made_by) | Revoked(client_id=made_by):
                if made_by == client_id and event.author == own.node_id:
                    return event
    return None


def _same(earlier: CommunityEvent, event_type: Kind, target: str, what: str) -> CommunityEvent:
    content = earlier.content
    if isinstance(content, Promoted | Demoted | Revoked):
        earlier_what = content.reason if isinstance(content, Revoked) else content.new_level
        if (earlier.event_type, content.target_node_id, earlier_what) == (event_type, target, what):
            return earlier
    raise invalid("client_id", "reused", "this client_id was used for something else; make a new one")


def _check_signatures(
    held: Roster, own: Identity, event_type: Kind, wanted: RoleInput | RevokeInput, what: str
) -> None:
    """Raise unless enough members have signed the change, this node included.

    A node needs no signatures for an event about itself.

    Raises:
        HearthNetError: as for `require_signatures`.
    """
    if own.node_id == wanted.target_node_id:
        return
    proposal = Proposal(
        event_type=event_type,
        community_id=held.community_id,
        target_node_id=wanted.target_node_id,
        what=what,
        client_id=wanted.client_id,
        co_signers=wanted.co_signers,
    )
    require_signatures(held, own, proposal)
