"""The community's roster: who belongs to it, at which level, with which NATS login.

A roster is what its events come to (trust/fold.py), so it proves itself: whoever has the community id, which
is the root's public key, can derive it again. Merging is union; an older roster can take nothing back.
`seal` is a node's own signature on what it has derived already, and good for that node alone.

See: docs/protocol/community.md#entry, docs/protocol/community.md#levels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final

import msgspec

from hearthnet.canonical import canonical_json, content_hash, read_json, refuse_repeated_keys
from hearthnet.errors import HearthNetError
from hearthnet.times import rfc3339
from hearthnet.trust import community, holds, signed
from hearthnet.trust.community import LOGIN_PURPOSE as LOGIN_PURPOSE
from hearthnet.trust.community import RANK as RANK
from hearthnet.trust.community import CommunityEvent, Entry
from hearthnet.trust.community import Level as Level
from hearthnet.trust.community import Policy as Policy
from hearthnet.trust.fold import Folded, fold
from hearthnet.trust.history import Heads, History
from hearthnet.trust.judge import LEVELS
from hearthnet.trust.keys import Identity

PURPOSE: Final = "roster"


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One member; `login` is the public nkey of its NATS login, bound to it both ways (see `Entry`)."""

    node_id: str
    level: Level
    display_name: str
    login: str
    login_signature: str
    login_proof: str
    added_at: str


class Invite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An invite that was neither used nor withdrawn. `expires_at` is in milliseconds; it may be over."""

    event_id: str
    event_hash: str
    invite_key: str
    login: str
    display_name: str
    invitee_node_id: str
    inviter: str
    expires_at: int


class Revocation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node that was put out, when by its revoker's clock, and why."""

    node_id: str
    revoked_at: str
    reason: str


class Roster(signed.Signed, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """The members as `events` give them; `version` counts the events, `signed_by` is whose seal it has."""

    version: int
    community_id: str
    name: str
    created_at: str
    policy: Policy
    members: tuple[Member, ...]
    revoked: tuple[Revocation, ...]
    invites: tuple[Invite, ...]
    head_lamport: int
    events: tuple[CommunityEvent, ...]
    signed_by: str = ""

    def signing_bytes(self) -> bytes:
        """What a seal covers: whose it is, and the hash of the whole document as JSON with sorted keys."""
        try:
            whole = _SORTED.encode(msgspec.structs.replace(self, signature=""))
        except RecursionError as error:
            raise HearthNetError("bad_request", "it is nested too deeply") from error
        return canonical_json({"signed_by": self.signed_by, "content": content_hash(whole)})

    def level(self, node: str, now_ms: int | None = None) -> str:
        """The level of `node`, or `unknown`; with `now_ms` also `invited` for the key of an open invite."""
        found = self._members.get(node)
        if found is not None:
            return found.level
        invite = None if now_ms is None else self._invites.get(node)
        return "unknown" if invite is None or now_ms is None or now_ms >= invite.expires_at else "invited"

    def member(self, node: str) -> Member | None:
        """The member with this node id."""
        return self._members.get(node)

    def invite(self, key: str) -> Invite | None:
        """The open invite with this invite key, expired or not."""
        return self._invites.get(key)

    def is_revoked(self, node: str) -> bool:
        """Whether `node` was put out and has not come back."""
        return node in self._revoked

    def revocation_of(self, node: str) -> str:
        """The hash of the event by which `node` is put out; empty where it is not."""
        return self.folded.revoked[node].event_hash if self.is_revoked(node) else ""

    def heads(self) -> Heads:
        """What is held, as others need it to say what we lack."""
        return self.history.heads()

    def lacks(self, heads: Mapping[str, Sequence[str]]) -> bool:
        """Whether someone with `heads` holds events that are not held here."""
        return self.history.lacks(heads)

    def missing(self, heads: Mapping[str, Sequence[str]]) -> tuple[CommunityEvent, ...]:
        """The events that someone with `heads` may lack, in an order in which they can be merged one by one.

        `bad_request` where `heads` are malformed.
        """
        return self.history.missing(heads)

    def missing_before(self, events: Iterable[CommunityEvent]) -> tuple[CommunityEvent, ...]:
        """Those of `events` that cannot be merged yet: they build on others that are not held."""
        return self.history.extended(events)[1]

    def next(self, author: str) -> tuple[int, str, int]:
        """Sequence, previous and lamport of the next event of `author`."""
        return self.history.next(author, self.head_lamport)

    def flaw(self, event: CommunityEvent) -> str:
        """Why a held event does not count; empty where it does."""
        return self.folded.flaws.get(event.hash, "")

    @cached_property
    def history(self) -> History:
        """The events, indexed."""
        return History(self.community_id, self.events)

    @cached_property
    def folded(self) -> Folded:
        """What the events come to, with all that the document leaves out."""
        return fold(self.history)

    @cached_property
    def _members(self) -> dict[str, Member]:
        return {member.node_id: member for member in self.members}

    @cached_property
    def _invites(self) -> dict[str, Invite]:
        return {invite.invite_key: invite for invite in self.invites}

    @cached_property
    def _revoked(self) -> frozenset[str]:
        return frozenset(one.node_id for one in self.revoked)


_SORTED: Final = msgspec.json.Encoder(order="sorted")
_DECODER: Final = msgspec.json.Decoder(Roster)


def member(identity: Identity, level: Level, display_name: str, now_ms: int) -> Member:
    """`identity`'s own entry, with its login bound to it."""
    return _member(community.entry_of(identity, display_name), level, rfc3339(now_ms))


def found(root: Identity, first: Member, name: str, now_ms: int) -> Roster:
    """A new community of one, whose first anchor is `first`; not sealed."""
    founder = Entry(first.node_id, first.display_name, first.login, first.login_signature, first.login_proof)
    event = community.write(
        root,
        root.node_id,
        community.CREATED,
        community.Created(name=name, founder=founder),
        place=(1, "", 1),
        now_ms=now_ms,
    )
    return _derived(History(root.node_id, [event]))


def derive(community_id: str, events: Iterable[CommunityEvent]) -> Roster:
    """The roster that `events` come to, proved from the community id upward: for one who holds none yet.

    What does not hold is left out, as in `merge`; `bad_request` where none of them founds the community.
    """
    history, _ = History(community_id).extended(events)
    return _derived(history)


def merge(roster: Roster, events: Iterable[CommunityEvent]) -> Roster:
    """The roster with all of `events` that hold; without a seal where that are more, else `roster` itself.

    Only signatures of events that are not held yet are checked. What does not hold, and what builds on events
    that are not held (see `Roster.missing_before`), is left out.
    """
    return merge_some(roster, events)[0]


def merge_some(roster: Roster, events: Iterable[CommunityEvent]) -> tuple[Roster, tuple[CommunityEvent, ...]]:
    """As `merge`, together with those of `events` that wait for others which are not held."""
    history, waiting = roster.history.extended(events)
    return (roster if history is roster.history else _derived(history)), waiting


def seal(roster: Roster, identity: Identity) -> Roster:
    """The roster with `identity`'s seal: what this node has derived once it need not derive again."""
    sealed = signed.sign(msgspec.structs.replace(roster, signed_by=identity.node_id), identity, PURPOSE)
    sealed.__dict__.update(roster.__dict__)  # what follows from it is what followed from it unsealed
    return sealed


def refuse_older(held: Roster, offered: Roster) -> None:
    """Raises `expired` where `offered` lacks an event of `held`, `unauthorized` for another community."""
    if held.community_id != offered.community_id:
        raise HearthNetError("unauthorized", "the roster is of another community")
    if offered.lacks(held.heads()):
        raise HearthNetError("expired", "the roster is older than the one that is held; merge them")


def encode(roster: Roster) -> bytes:
    """The roster as a file holds it: JSON, indented for people."""
    return msgspec.json.format(msgspec.json.encode(roster), indent=1) + b"\n"


def decode(data: bytes, trusted_signer: str = "") -> Roster:
    """The roster in `data`, proved from the community id upward by its events.

    With the seal of `trusted_signer`, the reader's own node, the events are not proved again. A seal that
    does not hold is none: a version that knew fewer rules has sealed another form of the same. Raises
    `bad_request` for what is no roster and `invalid_signature` for one that was altered.
    """
    try:
        roster = read_json(data, _DECODER)
        if not trusted_signer or roster.signed_by != trusted_signer or not _is_sealed(roster):
            refuse_repeated_keys(data)
            _prove(roster)
    except HearthNetError as error:
        raise HearthNetError(error.code, f"is no roster, or was altered: {error}") from error
    return roster


def _is_sealed(roster: Roster) -> bool:
    try:
        signed.check(roster, roster.signed_by, PURPOSE)
    except HearthNetError:
        return False
    return True


def _prove(roster: Roster) -> None:
    history, _ = History(roster.community_id).extended(roster.events)
    if len(history.events) != len(roster.events):
        for event in roster.events:
            holds.check(event, roster.community_id)
        raise HearthNetError("bad_request", "events that others build on are not in it")
    derived = _derived(history)
    if msgspec.structs.replace(derived, signed_by=roster.signed_by, signature=roster.signature) != roster:
        raise HearthNetError("invalid_signature", "its members are not what its events say")


def _derived(history: History) -> Roster:
    state = fold(history)
    taken = {standing.entry.login for standing in state.members.values()}
    invites: dict[str, Invite] = {}
    for one in state.invites:
        if one.content.login not in taken:
            taken.add(one.content.login)
            invites.setdefault(one.content.invite_key, _invite(one.event, one.content))
    roster = Roster(
        version=len(history.events),
        community_id=history.community_id,
        name=state.name,
        created_at=state.created_at,
        policy=state.policy,
        members=tuple(_member(one.entry, LEVELS[one.rank], one.added_at) for one in state.members.values()),
        revoked=tuple(Revocation(node, one.revoked_at, one.reason) for node, one in state.revoked.items()),
        invites=tuple(invites.values()),
        head_lamport=state.reached,
        events=history.events,
    )
    roster.__dict__.update(history=history, folded=state)
    return roster


def _member(entry: Entry, level: Level, added_at: str) -> Member:
    return Member(
        entry.node_id,
        level,
        entry.display_name,
        entry.login,
        entry.login_signature,
        entry.login_proof,
        added_at,
    )


def _invite(event: CommunityEvent, content: community.Invited) -> Invite:
    return Invite(
        event_id=event.event_id,
        event_hash=event.hash,
        invite_key=content.invite_key,
        login=content.login,
        display_name=content.display_name,
        invitee_node_id=content.invitee_node_id,
        inviter=event.author,
        expires_at=content.expires_at,
    )
