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
        Promoted,
        Revoked,
        Withdrawn,
    )
    from hearthnet.trust.community.invites import InviteText
    from hearthnet.trust.community.invites import admit as admit_newcomer
    from hearthnet.trust.community.proposals import Proposal
    from hearthnet.trust.community.roster import RANK, Member, Roster
    from hearthnet.trust.keys import Identity
else:
    __getattr__ = lazy(
        __name__,
        {
            "hearthnet.trust.authorization.approval": "decode_approval=decode",
            "hearthnet.trust.authorization.authority": "CallRequirement UNDELEGABLE foreseen_refusal",
            "hearthnet.trust.authorization.revocation": "Revocations TokenRevocation",
            "hearthnet.trust.authorization.token": (
                "BEARER Claims Confirmation Scope decode_token=decode mint_token=mint"
            ),
            "hearthnet.trust.community.commands": "CommunityAuthor",
            "hearthnet.trust.community.events": (
                "Admitted CoSigner CommunityEvent Demoted Invited Promoted Revoked Withdrawn"
            ),
            "hearthnet.trust.community.invites": "InviteText admit_newcomer=admit",
            "hearthnet.trust.community.proposals": "Proposal",
            "hearthnet.trust.community.roster": "Member RANK Roster",
            "hearthnet.trust.keys": "Identity",
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
