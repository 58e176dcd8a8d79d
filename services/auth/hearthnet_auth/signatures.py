"""Whether enough members have signed what a call asks for, before anything is made of it."""

from __future__ import annotations

from hearthnet.errors import HearthNetError
from hearthnet.trust import cosign
from hearthnet.trust.community import INVITED
from hearthnet.trust.cosign import Proposal
from hearthnet.trust.keys import Identity
from hearthnet.trust.roster import Roster


def demand(held: Roster, own: Identity, proposal: Proposal) -> None:
    """Raises `unauthorized` with the number that it takes where fewer have signed, this node included.

    `invalid_signature` where one of them has signed something else. Whether this node may sign at all is left
    to the event that it makes.
    """
    signed = cosign.check(cosign.sign(proposal, own), held)
    needed = cosign.needed(proposal, held)
    if own.node_id not in signed or len(signed) >= needed:
        return
    whose = "members who may invite" if proposal.event_type == INVITED else "trusted members"
    raise HearthNetError(
        "unauthorized",
        f"it takes {needed} signatures of {whose} and has {len(signed)}; pass a proposal round",
        details={"needed": needed, "signed": len(signed)},
    )
