"""Agreements of several members: the bytes that each signs, and the signers required.

Shared by removals and invites. The author of the event counts as one signer. A co-signer counts once, and
only if it could have done the same at that place in the order.

See: docs/protocol/community.md#agreements, docs/decisions/0046.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from hearthnet.core import ids
from hearthnet.core.canonical_json import canonical_json
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.community.events import COSIGN_PURPOSE, DEMOTED, INVITED, RANK, REVOKED, CoSigner, Policy
from hearthnet.trust.keys import verify

_WHAT: Final = {REVOKED: "reason", INVITED: "display_name"}
"""The member of an agreement that holds its subject, by event type; `new_level` for the other types."""


def cosign_payload(
    event_type: str,
    community: str,
    target: str,
    what: str,
    client_id: str,
    *,
    expires_at: int = 0,
    recalls: str = "",
) -> bytes:
    """Return the bytes that each signer signs.

    `what` is the reason of a revocation, the name in an invite, otherwise the new level. Only an invite
    contains its end (milliseconds) and the hash of the revocation that it recalls.
    """
    terms: dict[str, Any] = {
        "type": event_type,
        "community_id": community,
        "target_node_id": target,
        _WHAT.get(event_type, "new_level"): what,
        "client_id": client_id,
    }
    if event_type == INVITED:
        terms |= {"expires_at": expires_at, "recalls": recalls}
    return canonical_json(terms)


def check_signatures(agreed: bytes, co_signers: Iterable[CoSigner]) -> None:
    """Check that each of `co_signers` has signed `agreed`.

    Raises:
        HearthNetError: `invalid_signature` if one of them has signed anything else.
    """
    for one in co_signers:
        if not verify(one.node_id, COSIGN_PURPOSE, agreed, ids.unb64(one.signature)):
            raise HearthNetError(
                "invalid_signature", f"{ids.short_id(one.node_id)} has signed something else"
            )


def min_rank(policy: Policy, event_type: str) -> int:
    """Return the lowest rank whose signature counts for `event_type`.

    Trusted; for an invite member if the policy permits all members to invite.
    """
    everyone = event_type == INVITED and policy.default_member_can_invite
    return RANK["member" if everyone else "trusted"]


def required_signatures(policy: Policy, event_type: str, able: int) -> int:
    """Return the number of signers required if `able` nodes other than the target could sign.

    See: docs/protocol/community.md#agreements.
    """
    wanted = {
        REVOKED: policy.min_signatures_to_revoke,
        DEMOTED: policy.min_signatures_to_demote,
        INVITED: policy.min_signatures_to_invite,
    }
    return max(1, min(wanted.get(event_type, 1), able))
