"""Check that enough members have signed a proposal, before an event is made of it."""

from __future__ import annotations

from hearthnet import HearthNetError
from hearthnet.trust import Identity, Proposal, Roster


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
    whose = (
        "members who may invite" if proposal.event_type == "community.member.invited" else "trusted members"
    )
    raise HearthNetError(
        "unauthorized",
        f"it takes {needed} signatures of {whose} and has {len(signed)}; pass a proposal round",
        details={"needed": needed, "signed": len(signed)},
    )
