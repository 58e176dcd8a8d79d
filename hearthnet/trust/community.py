"""What happens in a community, as signed events.

Each event is its author's alone: signed by it, and chained to its event before (`sequence`, `previous`), so
that others can say which of an author's events they knew. Whether an event holds by itself is checked once,
before it is kept (trust/holds.py); whether it counts is decided by all events together (trust/fold.py).

See: docs/protocol/community.md#event, docs/decisions/0040.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Final, Literal

import msgspec

from hearthnet import ids
from hearthnet.canonical import canonical_json, content_hash, read_json, refuse_repeated_keys
from hearthnet.errors import HearthNetError
from hearthnet.times import rfc3339
from hearthnet.trust import signed
from hearthnet.trust.keys import Identity, Login
from hearthnet.types import Count

PURPOSE: Final = "community"
LOGIN_PURPOSE: Final = "login"
PROOF_PURPOSE: Final = "login proof"
INVITE_PURPOSE: Final = "invite"
COSIGN_PURPOSE: Final = "cosign"

CREATED: Final = "community.created"
INVITED: Final = "community.member.invited"
JOINED: Final = "community.member.joined"
ADMITTED: Final = "community.member.admitted"
PROMOTED: Final = "community.member.promoted"
DEMOTED: Final = "community.member.demoted"
REVOKED: Final = "community.member.revoked"
WITHDRAWN: Final = "community.invite.withdrawn"
POLICY: Final = "community.policy.updated"

Level = Literal["member", "trusted", "anchor"]
RANK: Final[dict[str, int]] = {"unknown": 0, "invited": 1, "member": 2, "trusted": 3, "anchor": 4}

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Hash = Annotated[str, msgspec.Meta(pattern=r"^blake3:[0-9a-f]{64}\Z")]
HashOrNone = Annotated[str, msgspec.Meta(pattern=r"^(blake3:[0-9a-f]{64})?\Z")]
Sequence = Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]
Heads = Annotated[tuple[Hash, ...], msgspec.Meta(max_length=64)]
Signatures = Annotated[int, msgspec.Meta(ge=1, le=32)]


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rules that the root may change. Signatures count distinct signers, the author among them."""

    min_signatures_to_demote: Signatures = 3
    min_signatures_to_revoke: Signatures = 3
    min_signatures_to_invite: Signatures = 1
    capability_token_ttl_seconds: Annotated[int, msgspec.Meta(ge=60, le=86_400)] = 86_400
    default_member_can_invite: bool = True


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node and its NATS login, each bound to the other.

    `login_signature` is the node's over the login, `login_proof` the login's over the node id: nobody else
    can name a login for a node, or a node for a login.
    """

    node_id: str
    display_name: Name
    login: str
    login_signature: str
    login_proof: str


class CoSigner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Someone who agrees: `signature` is over the bytes of trust/agreement.py."""

    node_id: str
    signature: str


CoSigners = Annotated[tuple[CoSigner, ...], msgspec.Meta(max_length=32)]


class Data(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one kind of event says; unknown members are refused, as they may be limits (decisions/0008)."""


class Created(Data, frozen=True, kw_only=True):
    """The community exists; its founder is its first anchor. By the root, as its first event."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    founder: Entry
    policy: Policy = Policy()


class Invited(Data, frozen=True, kw_only=True):
    """Whoever holds the key of `invite_key` may ask to join until `expires_at` (milliseconds).

    `login_signature` is the invite key's over `invitation`, so that nobody can make another's invite their
    own; `invitee_node_id` names the only node it is for, or is empty. Where others agreed to it
    (`co_signers`), it names one; `recalls` is the hash of the revocation of that node which they undo, empty
    where there is none.
    """

    invite_key: str
    login: str
    login_signature: str
    login_proof: str
    display_name: Annotated[str, msgspec.Meta(max_length=64)] = ""
    initial_level: Literal["member"] = "member"
    invitee_node_id: str = ""
    expires_at: Count
    client_id: str = ""
    co_signers: CoSigners = ()
    recalls: HashOrNone = ""


class Joined(Data, frozen=True, kw_only=True):
    """The author asks to be a member. `invite_signature` is the invite key's over `request`."""

    invite_event_hash: Hash
    invite_key: str
    member: Entry
    invite_signature: str


class Admitted(Data, frozen=True, kw_only=True):
    """The author, who may invite, lets in the one who asked by the `joined` event of this hash."""

    joined_event_hash: Hash
    node_id: str


class Promoted(Data, frozen=True, kw_only=True):
    """The target has `new_level` from now on."""

    target_node_id: str
    new_level: Literal["trusted", "anchor"]
    client_id: str
    co_signers: CoSigners = ()


class Demoted(Data, frozen=True, kw_only=True):
    """The target has `new_level` from now on; of its own events those count as before that `target_heads`
    end.
    """

    target_node_id: str
    new_level: Literal["member", "trusted"]
    client_id: str
    co_signers: CoSigners = ()
    target_heads: Heads = ()


class Revoked(Data, frozen=True, kw_only=True):
    """The target is no member any more; of its own events those count that `target_heads` end."""

    target_node_id: str
    reason: Annotated[str, msgspec.Meta(max_length=200)]
    client_id: str
    co_signers: CoSigners = ()
    target_heads: Heads = ()


class Withdrawn(Data, frozen=True, kw_only=True):
    """The invite with this hash is not to be used any more."""

    invite_event_hash: Hash


class PolicyUpdated(Data, frozen=True, kw_only=True):
    """The rules from now on; events that `heads` do not end are judged by them whatever their lamport."""

    policy: Policy
    heads: dict[str, Heads]


Content = (
    Created | Invited | Joined | Admitted | Promoted | Demoted | Revoked | Withdrawn | PolicyUpdated | None
)
_CONTENTS: Final[dict[str, Any]] = {
    CREATED: Created,
    INVITED: Invited,
    JOINED: Joined,
    ADMITTED: Admitted,
    PROMOTED: Promoted,
    DEMOTED: Demoted,
    REVOKED: Revoked,
    WITHDRAWN: Withdrawn,
    POLICY: PolicyUpdated,
}


class CommunityEvent(signed.Signed, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """One event. `previous` is the `hash` of the author's event before, empty at its first."""

    schema_version: Annotated[int, msgspec.Meta(ge=1, le=2**31)] = 1
    event_id: str
    lamport: Sequence
    wall_clock: str
    community_id: str
    author: str
    sequence: Sequence
    previous: str
    event_type: Annotated[str, msgspec.Meta(pattern=r"^community\.[a-z_.]{1,40}\Z")]
    data: dict[str, Any]

    @cached_property
    def hash(self) -> str:
        """`blake3:` and 64 hex characters over the canonical JSON, signature included."""
        return content_hash(canonical_json(self.as_json()))

    @cached_property
    def content(self) -> Content:
        """What it says; None for what a later version wrote. `bad_request` where it is malformed."""
        if self.schema_version != 1 or self.event_type not in _CONTENTS:
            return None
        try:
            content: Content = msgspec.convert(self.data, _CONTENTS[self.event_type])
        except msgspec.ValidationError as error:
            raise HearthNetError("bad_request", f"malformed {self.event_type}: {error}") from error
        return content

    @property
    def order(self) -> tuple[int, str, str]:
        """By this all nodes put the events of a community in one order (docs/protocol/community.md#order)."""
        return self.lamport, self.event_id, self.hash


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(CommunityEvent)


def encode(event: CommunityEvent) -> bytes:
    """The event as JSON."""
    return _ENCODER.encode(event)


def decode(data: bytes) -> CommunityEvent:
    """The event in `data`, not yet proved (see `trust.holds.check`); `bad_request` for anything else."""
    event = read_json(data, _DECODER)
    refuse_repeated_keys(data)
    return event


def entry_of(identity: Identity, display_name: str) -> Entry:
    """`identity`'s own entry, with its login bound to it."""
    login = identity.login()
    signature = identity.sign(LOGIN_PURPOSE, login.public.encode("ascii"))
    return Entry(
        identity.node_id, display_name, login.public, ids.b64(signature), _proof(login, identity.node_id)
    )


def invitation(community: str, inviter: str, invited: Invited) -> bytes:
    """What the invite key signs when an invite is made: whose it is, for whom, and until when."""
    return canonical_json(
        {
            "community_id": community,
            "inviter": inviter,
            "login": invited.login,
            "invitee_node_id": invited.invitee_node_id,
            "expires_at": invited.expires_at,
        }
    )


def invited(
    community: str,
    inviter: str,
    key: Identity,
    *,
    display_name: str,
    expires_at: int,
    invitee: str = "",
    client_id: str = "",
    co_signers: tuple[CoSigner, ...] = (),
    recalls: str = "",
) -> Invited:
    """The content of an invite by `inviter` with the one-time `key`; `expires_at` in milliseconds."""
    login = key.login()
    bare = Invited(
        invite_key=key.node_id,
        login=login.public,
        login_signature="",
        login_proof=_proof(login, key.node_id),
        display_name=display_name,
        invitee_node_id=invitee,
        expires_at=expires_at,
        client_id=client_id,
        co_signers=co_signers,
        recalls=recalls,
    )
    signature = key.sign(INVITE_PURPOSE, invitation(community, inviter, bare))
    return msgspec.structs.replace(bare, login_signature=ids.b64(signature))


def request(community: str, joined: Joined) -> bytes:
    """What the invite key signs when it is used: by whom, and with which login."""
    return canonical_json(
        {
            "community_id": community,
            "invite_event_hash": joined.invite_event_hash,
            "node_id": joined.member.node_id,
            "login": joined.member.login,
        }
    )


def write(
    identity: Identity,
    community: str,
    event_type: str,
    content: Data,
    *,
    place: tuple[int, str, int],
    now_ms: int,
) -> CommunityEvent:
    """A signed event of `identity` at `place`: sequence, previous and lamport, as of `Roster.next`."""
    sequence, previous, lamport = place
    event = CommunityEvent(
        event_id=ids.new_ulid(now_ms),
        lamport=lamport,
        wall_clock=rfc3339(now_ms),
        community_id=community,
        author=identity.node_id,
        sequence=sequence,
        previous=previous,
        event_type=event_type,
        data=msgspec.json.decode(msgspec.json.encode(content)),  # as every reader will have it
    )
    return signed.sign(event, identity, PURPOSE)


def _proof(login: Login, node: str) -> str:
    return ids.b64(login.sign(PROOF_PURPOSE, node.encode("ascii")))
