"""Proposals as texts to hand round, until enough members have signed (resolutions.md 71 and 72).

    hnproposal://v1/<base64url of canonical JSON>.<first 8 characters of its BLAKE3, in hex>

Nothing in it is secret. Whoever gathers the signatures makes the event; what was signed cannot be changed.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, get_args

import msgspec

from hearthnet import ids
from hearthnet.errors import HearthNetError
from hearthnet.trust import community, pasted
from hearthnet.trust.community import RANK, CoSigner, CoSigners
from hearthnet.trust.keys import Identity, verify
from hearthnet.trust.roster import Roster

SCHEME: Final = "hnproposal://v1/"
MAX_LENGTH: Final = 12_288
Kind = Literal["community.member.promoted", "community.member.demoted", "community.member.revoked"]


class Proposal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is proposed, and who has signed it. `what` is the new level, or the reason of a revocation."""

    event_type: Kind = msgspec.field(name="e")
    community_id: str = msgspec.field(name="c")
    target_node_id: str = msgspec.field(name="t")
    what: Annotated[str, msgspec.Meta(max_length=200)] = msgspec.field(name="w")
    client_id: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] = msgspec.field(name="i")
    co_signers: CoSigners = msgspec.field(name="s", default=())

    def agreement(self) -> bytes:
        """What each signer signs."""
        return community.agreement(
            self.event_type, self.community_id, self.target_node_id, self.what, self.client_id
        )


_DECODER: Final = msgspec.json.Decoder(Proposal)


def encode(proposal: Proposal) -> str:
    """The text to hand round."""
    return pasted.encode(SCHEME, msgspec.to_builtins(proposal))


def decode(text: str) -> Proposal:
    """The proposal in `text`, its signatures not checked yet; `bad_request`, in words for people."""
    proposal = pasted.decode(text, SCHEME, MAX_LENGTH, _DECODER, "proposal")
    for node in (proposal.community_id, proposal.target_node_id):
        ids.public_key(node)
    if proposal.event_type != community.REVOKED and proposal.what not in get_args(community.Level):
        raise HearthNetError("bad_request", "the proposal names no level")
    return proposal


def sign(proposal: Proposal, identity: Identity) -> Proposal:
    """The proposal with `identity`'s signature, once."""
    signature = identity.sign(community.COSIGN_PURPOSE, proposal.agreement())
    others = tuple(one for one in proposal.co_signers if one.node_id != identity.node_id)
    signers = (*others, CoSigner(identity.node_id, ids.b64(signature)))
    return msgspec.structs.replace(proposal, co_signers=signers)


def check(proposal: Proposal, held: Roster) -> tuple[str, ...]:
    """The node ids of those whose signatures count now, each once.

    Raises `unauthorized` for another community, `not_found` where the target is no member, and
    `invalid_signature` for a signature over something else.
    """
    if proposal.community_id != held.community_id:
        raise HearthNetError("unauthorized", "the proposal is about another community")
    if held.member(proposal.target_node_id) is None:
        raise HearthNetError("not_found", f"{proposal.target_node_id} is no member of {held.name}")
    agreed = proposal.agreement()
    for one in proposal.co_signers:
        if not verify(one.node_id, community.COSIGN_PURPOSE, agreed, ids.unb64(one.signature)):
            raise HearthNetError(
                "invalid_signature", f"{ids.short_id(one.node_id)} has signed something else"
            )
    able = (one.node_id for one in proposal.co_signers if _may_sign(held, one.node_id))
    return tuple(node for node in dict.fromkeys(able) if node != proposal.target_node_id)


def needed(proposal: Proposal, held: Roster) -> int:
    """How many signatures of trusted members it takes, the author's among them (resolutions.md 72)."""
    others = (one.node_id for one in held.members if one.node_id != proposal.target_node_id)
    return community.needed(held.policy, proposal.event_type, sum(_may_sign(held, node) for node in others))


def _may_sign(held: Roster, node: str) -> bool:
    return RANK[held.level(node)] >= RANK["trusted"]
