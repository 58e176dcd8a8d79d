"""Identity and authority: pure functions over bytes and documents, no I/O.

See: docs/architecture.md#the-rooms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthnet.core.lazy_import import lazy

if TYPE_CHECKING:
    from hearthnet.trust.authorization.approval import decode as decode_approval
    from hearthnet.trust.authorization.authority import UNDELEGABLE, CallRequirement, foreseen_refusal
    from hearthnet.trust.authorization.revocation import Revocations, TokenRevocation
    from hearthnet.trust.authorization.token import BEARER, Claims, Confirmation, Scope
    from hearthnet.trust.authorization.token import decode as decode_token
    from hearthnet.trust.authorization.token import mint as mint_token
    from hearthnet.trust.community.commands import CommunityAuthor
    from hearthnet.trust.community.events import (
        Admitted,
        CommunityEvent,
        CoSigner,
        Demoted,
        Invited,
        PolicyUpdated,
        Promoted,
        Revoked,
        Withdrawn,
    )
    from hearthnet.trust.community.invites import InviteText
    from hearthnet.trust.community.invites import admit as admit_newcomer
    from hearthnet.trust.community.proposals import Proposal
    from hearthnet.trust.community.roster import RANK, Member, Policy, Roster
    from hearthnet.trust.keys import Identity
else:
    __getattr__ = lazy(
        __name__,
        {
            "Admitted": "hearthnet.trust.community.events",
            "BEARER": "hearthnet.trust.authorization.token",
            "CallRequirement": "hearthnet.trust.authorization.authority",
            "Claims": "hearthnet.trust.authorization.token",
            "CoSigner": "hearthnet.trust.community.events",
            "CommunityAuthor": "hearthnet.trust.community.commands",
            "CommunityEvent": "hearthnet.trust.community.events",
            "Confirmation": "hearthnet.trust.authorization.token",
            "Demoted": "hearthnet.trust.community.events",
            "Identity": "hearthnet.trust.keys",
            "InviteText": "hearthnet.trust.community.invites",
            "Invited": "hearthnet.trust.community.events",
            "Member": "hearthnet.trust.community.roster",
            "Policy": "hearthnet.trust.community.roster",
            "PolicyUpdated": "hearthnet.trust.community.events",
            "Promoted": "hearthnet.trust.community.events",
            "Proposal": "hearthnet.trust.community.proposals",
            "RANK": "hearthnet.trust.community.roster",
            "Revocations": "hearthnet.trust.authorization.revocation",
            "Revoked": "hearthnet.trust.community.events",
            "Roster": "hearthnet.trust.community.roster",
            "Scope": "hearthnet.trust.authorization.token",
            "TokenRevocation": "hearthnet.trust.authorization.revocation",
            "UNDELEGABLE": "hearthnet.trust.authorization.authority",
            "Withdrawn": "hearthnet.trust.community.events",
            "admit_newcomer": "hearthnet.trust.community.invites:admit",
            "decode_approval": "hearthnet.trust.authorization.approval:decode",
            "decode_token": "hearthnet.trust.authorization.token:decode",
            "foreseen_refusal": "hearthnet.trust.authorization.authority",
            "mint_token": "hearthnet.trust.authorization.token:mint",
        },
    )

__all__ = [
    "BEARER",
    "RANK",
    "UNDELEGABLE",
    "Admitted",
    "CallRequirement",
    "Claims",
    "CoSigner",
    "CommunityAuthor",
    "CommunityEvent",
    "Confirmation",
    "Demoted",
    "Identity",
    "InviteText",
    "Invited",
    "Member",
    "Policy",
    "PolicyUpdated",
    "Promoted",
    "Proposal",
    "Revocations",
    "Revoked",
    "Roster",
    "Scope",
    "TokenRevocation",
    "Withdrawn",
    "admit_newcomer",
    "decode_approval",
    "decode_token",
    "foreseen_refusal",
    "mint_token",
]
