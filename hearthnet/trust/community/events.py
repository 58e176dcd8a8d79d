"""The history of a community, as signed events.

Each event has one author, who signs it and chains it to the author's previous event (`sequence`, `previous`),
so that others can name the events that they knew. The validity of a single event is checked once, before it
is kept (trust/community/event_validation.py); all events together decide whether it counts
(trust/community/reducer.py).

See: docs/protocol/community.md#event, docs/decisions/0040.
"""

from __future__ import annotations

import contextlib
from functools import cached_property
from typing import Annotated, Any, Final, Literal

import msgspec

from hearthnet.core import ids
from hearthnet.core.canonical_json import canonical_json, content_hash, read_json, refuse_repeated_keys
from hearthnet.core.capability_name import Count
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import rfc3339
from hearthnet.trust import signed_document
from hearthnet.trust.community import doors, person_statements, recovery_statements
from hearthnet.trust.community.person_statements import Statement
from hearthnet.trust.keys import Identity, Login

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

DAILY_ADMISSIONS: Final = 5
"""Admissions a day by a plain member and those who came by its invites, unless the policy says otherwise."""

Level = Literal["member", "trusted", "anchor"]
RANK: Final[dict[str, int]] = {"unknown": 0, "invited": 1, "member": 2, "trusted": 3, "anchor": 4}

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Hash = Annotated[str, msgspec.Meta(pattern=r"^blake3:[0-9a-f]{64}\Z")]
HashOrNone = Annotated[str, msgspec.Meta(pattern=r"^(blake3:[0-9a-f]{64})?\Z")]
Sequence = Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]
HeadHashes = Annotated[tuple[Hash, ...], msgspec.Meta(max_length=64)]
Signatures = Annotated[int, msgspec.Meta(ge=1, le=32)]


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rules that the root may change; signatures are of distinct signers, author included."""

    min_signatures_to_demote: Signatures = 3
    min_signatures_to_revoke: Signatures = 3
    min_signatures_to_invite: Signatures = 1
    capability_token_ttl_seconds: Annotated[int, msgspec.Meta(ge=60, le=86_400)] = 86_400
    default_member_can_invite: bool = True
    # Omitted where it is not set: versions before it read no policy that has it.
    admissions_per_day: Annotated[int, msgspec.Meta(ge=1, le=1_000)] | msgspec.UnsetType = msgspec.UNSET

    @property
    def daily_admissions(self) -> int:
        """The number of nodes that a member and those who came by it let in on one day, at most."""
        return DAILY_ADMISSIONS if self.admissions_per_day is msgspec.UNSET else self.admissions_per_day


class EventEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node and its NATS login, each bound to the other.

    `login_signature` is the node's over the login, `login_proof` the login's over the node id, so that no
    third party can name a login for a node, or a node for a login.
    """

    node_id: str
    display_name: Name
    login: str
    login_signature: str
    login_proof: str


class CoSigner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A member who agrees; `signature` is over the bytes of trust/community/quorum.py."""

    node_id: str
    signature: str


CoSigners = Annotated[tuple[CoSigner, ...], msgspec.Meta(max_length=32)]


class Data(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The data of one kind of event.

    Unknown members are refused, as they may be limits (decisions/0008).
    """


class Created(Data, frozen=True, kw_only=True):
    """The founding of the community, whose founder is its first anchor.

    The root's first event.
    """

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    founder: EventEntry
    policy: Policy = Policy()


class Invited(Data, frozen=True, kw_only=True):
    """An invite: the holder of the key of `invite_key` may request to join until `expires_at`.

    `expires_at` is in milliseconds. `login_signature` is the invite key's over `invitation`, so that the
    invite cannot be claimed by another inviter. `invitee_node_id` names the only node that it is for, or is
    empty; it is required with `co_signers`. `recalls` is the hash of the revocation of that node which the
    co-signers undo, empty if there is none.
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
    """The author's request to become a member.

    `invite_signature` is the invite key's over `request`.
    """

    invite_event_hash: Hash
    invite_key: str
    member: EventEntry
    invite_signature: str


class Admitted(Data, frozen=True, kw_only=True):
    """The admission of the author of the `joined` event of this hash.

    The author of the admission must have the right to invite.
    """

    joined_event_hash: Hash
    node_id: str


class Promoted(Data, frozen=True, kw_only=True):
    """A promotion: the target has `new_level` from now on."""

    target_node_id: str
    new_level: Literal["trusted", "anchor"]
    client_id: str
    co_signers: CoSigners = ()


class Demoted(Data, frozen=True, kw_only=True):
    """A demotion: the target has `new_level` from now on.

    Of the target's own events, those up to `target_heads` count as before.
    """

    target_node_id: str
    new_level: Literal["member", "trusted"]
    client_id: str
    co_signers: CoSigners = ()
    target_heads: HeadHashes = ()


class Revoked(Data, frozen=True, kw_only=True):
    """A revocation: the target is no longer a member.

    Of the target's own events, those up to `target_heads` count as before.
    """

    target_node_id: str
    reason: Annotated[str, msgspec.Meta(max_length=200)]
    client_id: str
    co_signers: CoSigners = ()
    target_heads: HeadHashes = ()


class Withdrawn(Data, frozen=True, kw_only=True):
    """A withdrawal of the invite with this hash."""

    invite_event_hash: Hash


class PolicyUpdated(Data, frozen=True, kw_only=True):
    """New rules, for all later events and for those beyond `heads`, whatever their lamport."""

    policy: Policy
    heads: dict[str, HeadHashes]


_Membership = Created | Invited | Joined | Admitted | Promoted | Demoted | Revoked | Withdrawn | PolicyUpdated
Content = _Membership | doors.Content | person_statements.Content | recovery_statements.Content | None
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
    **doors.CONTENTS,
    **recovery_statements.STATEMENTS,
}


_UNKNOWN_MEMBER: Final = "Object contains unknown field"
"""The beginning of what msgspec says of a member that a type does not have."""


class CommunityEvent(
    signed_document.Signed, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True
):
    """One event; `previous` is the `hash` of the author's previous event, empty at its first."""

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
        """`blake3:` and 64 hexadecimal digits over the canonical JSON, signature included."""
        return content_hash(canonical_json(self.as_json()))

    @cached_property
    def content(self) -> Content:
        """The typed data of the event; None for a kind, schema or member of a later version.

        Data with an unknown member have no effect, since it may be a limit; but the event is kept: all that
        its author writes after it would be refused without it.

        Raises:
            HearthNetError: `bad_request` if the data are malformed.
        """
        if self.schema_version != 1 or self.event_type not in _CONTENTS:
            return None
        try:
            content: Content = msgspec.convert(self.data, _CONTENTS[self.event_type])
        except msgspec.ValidationError as error:
            # A community is what its first event says, so that one is read whole or not at all.
            if self.event_type != CREATED and str(error).startswith(_UNKNOWN_MEMBER):
                return None
            raise HearthNetError("bad_request", f"malformed {self.event_type}: {error}") from error
        return content

    def encode(self) -> bytes:
        """Return the event as JSON."""
        return msgspec.json.encode(self)

    @property
    def order(self) -> tuple[int, str, str]:
        """The key by which all nodes sort a community's events (docs/protocol/community.md#order)."""
        return self.lamport, self.event_id, self.hash


def co_signatures(event: CommunityEvent) -> int:
    """Return the number of signatures in the content of `event`; 0 if it is malformed."""
    with contextlib.suppress(HearthNetError):
        statement = 2 * isinstance(event.content, Statement)
        return len(getattr(event.content, "co_signers", ())) + statement
    return 0


_DECODER: Final = msgspec.json.Decoder(CommunityEvent)


def decode(data: bytes) -> CommunityEvent:
    """Read the event in `data`, without the checks of `trust.holds.check`.

    Raises:
        HearthNetError: `bad_request` for anything else.
    """
    event = read_json(data, _DECODER)
    refuse_repeated_keys(data)
    return event


def entry_of(identity: Identity, display_name: str) -> EventEntry:
    """Return the entry of `identity`, with its login bound to it."""
    login = identity.login()
    signature = identity.sign(LOGIN_PURPOSE, login.public.encode("ascii"))
    return EventEntry(
        identity.node_id, display_name, login.public, ids.b64(signature), _proof(login, identity.node_id)
    )


def invitation(community: str, inviter: str, invited: Invited) -> bytes:
    """Return the bytes that the invite key signs when an invite is made.

    They name the inviter, the invitee and the end.
    """
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
    """Return the content of an invite by `inviter` with the one-time `key`.

    `expires_at` is in milliseconds.
    """
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
    """Return the bytes that the invite key signs when it is used: by which node and login."""
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
    content: Data | doors.Content | Statement,
    *,
    place: tuple[int, str, int],
    now_ms: int,
) -> CommunityEvent:
    """Return a signed event of `identity` at `place`.

    `place` is sequence, previous and lamport, as of `Roster.next`.
    """
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
        data=msgspec.json.decode(msgspec.json.encode(content)),  # as every reader decodes it
    )
    return signed_document.sign(event, identity, PURPOSE)


def _proof(login: Login, node: str) -> str:
    return ids.b64(login.sign(PROOF_PURPOSE, node.encode("ascii")))
