"""Proposals: texts that are passed around until enough members have signed.

    hnproposal://v1/<base64url of canonical JSON>.<first 8 characters of its BLAKE3, in hex>

Nothing in them is secret. The member who gathers the signatures makes the event; the signed terms cannot be
changed.

See: docs/protocol/community.md#proposal-text.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, get_args

import msgspec

from hearthnet.core import ids
from hearthnet.core.capability_name import Count
from hearthnet.core.errors import HearthNetError
from hearthnet.trust import text_armor
from hearthnet.trust.community import events, quorum
from hearthnet.trust.community.events import INVITED, RANK, REVOKED, CoSigner, CoSigners, HashOrNone
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity

SCHEME: Final = "hnproposal://v1/"
MAX_LENGTH: Final = 12_288
_LONGEST_NAME: Final = 64
Kind = Literal[
    "community.member.promoted",
    "community.member.demoted",
    "community.member.revoked",
    "community.member.invited",
]


class Proposal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The terms of an act and the signatures under them.

    `what` is the new level, the reason of a revocation, or the name in an invite. An invite alone has an end
    (milliseconds) and, if the target was revoked, the hash of that revocation.
    """

    event_type: Kind = msgspec.field(name="e")
    community_id: str = msgspec.field(name="c")
    target_node_id: str = msgspec.field(name="t")
    what: Annotated[str, msgspec.Meta(max_length=200)] = msgspec.field(name="w")
    client_id: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] = msgspec.field(name="i")
    expires_at: Count = msgspec.field(name="x", default=0)
    recalls: HashOrNone = msgspec.field(name="r", default="")
    co_signers: CoSigners = msgspec.field(name="s", default=())

    def agreement(self) -> bytes:
        """Return the bytes that each signer signs."""
        return quorum.cosign_payload(
            self.event_type,
            self.community_id,
            self.target_node_id,
            self.what,
            self.client_id,
            expires_at=self.expires_at,
            recalls=self.recalls,
        )

    def sign(self, identity: Identity) -> Proposal:
        """Return the proposal with the signature of `identity`, once."""
        signature = identity.sign(events.COSIGN_PURPOSE, self.agreement())
        others = tuple(one for one in self.co_signers if one.node_id != identity.node_id)
        signers = (*others, CoSigner(identity.node_id, ids.b64(signature)))
        return msgspec.structs.replace(self, co_signers=signers)

    def check(self, held: Roster) -> tuple[str, ...]:
        """Return the node ids whose signatures count now, each once.

        Raises:
            HearthNetError: `unauthorized` for another community and for an invite of a node whose
                revocation has changed since; `not_found` if the target must be a member and is not;
                `invalid_signature` for a signature over other terms.
        """
        if self.community_id != held.community_id:
            raise HearthNetError("unauthorized", "the proposal is about another community")
        target = self.target_node_id
        if self.event_type == INVITED:
            if self.recalls != held.revocation_of(target):
                raise HearthNetError(
                    "unauthorized",
                    f"{ids.short_id(target)} was put out, or came back, since; propose it anew",
                )
        elif held.member(target) is None:
            raise HearthNetError("not_found", f"{target} is no member of {held.name}")
        quorum.check_signatures(self.agreement(), self.co_signers)
        able = (one.node_id for one in self.co_signers if _may_sign(self, held, one.node_id))
        return tuple(node for node in dict.fromkeys(able) if node != target)

    def needed(self, held: Roster) -> int:
        """Return the number of signatures required, the author's included.

        See: docs/protocol/community.md#agreements.
        """
        others = (one.node_id for one in held.members if one.node_id != self.target_node_id)
        able = sum(_may_sign(self, held, node) for node in others)
        return quorum.required_signatures(held.policy, self.event_type, able)


_DECODER: Final = msgspec.json.Decoder(Proposal)


def encode(proposal: Proposal) -> str:
    """Return the text to pass around."""
    return text_armor.armor(SCHEME, msgspec.to_builtins(proposal))


def decode(text: str) -> Proposal:
    """Read the proposal in `text`, without checking its signatures.

    Raises:
        HearthNetError: `bad_request`, worded for people, if it is malformed or damaged.
    """
    proposal = text_armor.unarmor(text, SCHEME, MAX_LENGTH, _DECODER, "proposal")
    for node in (proposal.community_id, proposal.target_node_id):
        ids.public_key(node)
    _check_terms(proposal)
    return proposal


def _check_terms(proposal: Proposal) -> None:
    if proposal.event_type == INVITED:
        if len(proposal.what) > _LONGEST_NAME or not proposal.expires_at:
            raise HearthNetError("bad_request", "the proposal has no end, or too long a name")
    elif proposal.expires_at or proposal.recalls:
        raise HearthNetError("bad_request", "only an invite has an end")
    elif proposal.event_type != REVOKED and proposal.what not in get_args(events.Level):
        raise HearthNetError("bad_request", "the proposal names no level")


def _may_sign(proposal: Proposal, held: Roster, node: str) -> bool:
    return RANK[held.level(node)] >= quorum.min_rank(held.policy, proposal.event_type)
