"""The community's roster: its members, their levels and their NATS logins.

A roster is derived from its events (trust/community/reducer.py) and so proves itself: everyone with the
community id, which is the root's public key, can derive it again. Merging is union; an older roster cannot
undo anything. `seal` is a node's own signature on a roster that it has derived, of use to that node alone.

See: docs/protocol/community.md#entry, docs/protocol/community.md#levels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final

import msgspec

from hearthnet.core.canonical_json import canonical_json, content_hash, read_json, refuse_repeated_keys
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import rfc3339
from hearthnet.trust import signed_document
from hearthnet.trust.community import event_validation, events
from hearthnet.trust.community.doors import Door
from hearthnet.trust.community.events import LOGIN_PURPOSE as LOGIN_PURPOSE
from hearthnet.trust.community.events import RANK as RANK
from hearthnet.trust.community.events import CommunityEvent, EventEntry
from hearthnet.trust.community.events import Level as Level
from hearthnet.trust.community.events import Policy as Policy
from hearthnet.trust.community.history import History
from hearthnet.trust.community.names import nodes_called, shown_names
from hearthnet.trust.community.person_statements import DEVICE_REMOVED
from hearthnet.trust.community.persons import Device, Person
from hearthnet.trust.community.reducer import replay
from hearthnet.trust.community.removals import removal_target
from hearthnet.trust.community.replay import LEVELS, RosterReplay
from hearthnet.trust.eventlog.chain_ends import Heads
from hearthnet.trust.keys import Identity

PURPOSE: Final = "roster"
OWNER_GUEST: Final = "owner"
"""The guest as whom the pages of a node's owner act (docs/protocol/identity.md#principals)."""


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One member; `login` is the public nkey of its NATS login, bound both ways (see `EventEntry`)."""

    node_id: str
    level: Level
    display_name: str
    login: str
    login_signature: str
    login_proof: str
    added_at: str


class Invite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An invite neither used nor withdrawn; `expires_at` (milliseconds) may have passed."""

    event_id: str
    event_hash: str
    invite_key: str
    login: str
    display_name: str
    invitee_node_id: str
    inviter: str
    expires_at: int


class Revocation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A revoked node, the time by its revoker's clock, and the reason."""

    node_id: str
    revoked_at: str
    reason: str


class Roster(signed_document.Signed, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """The members as derived from `events`.

    `version` counts the events, `signed_by` is the node whose seal it has.
    """

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
        """Return the bytes that a seal covers.

        They are the seal's node, and the hash of the whole document as JSON with sorted keys.
        """
        try:
            whole = _SORTED.encode(msgspec.structs.replace(self, signature=""))
        except RecursionError as error:
            raise HearthNetError("bad_request", "it is nested too deeply") from error
        return canonical_json({"signed_by": self.signed_by, "content": content_hash(whole)})

    def level(self, node: str, now_ms: int | None = None) -> str:
        """Return the level of `node`, or `unknown`.

        With `now_ms`, `invited` for the key of an open invite.
        """
        found = self._members.get(node)
        if found is not None:
            return found.level
        invite = None if now_ms is None else self._invites.get(node)
        return "unknown" if invite is None or now_ms is None or now_ms >= invite.expires_at else "invited"

    def shown_name(self, node: str) -> str:
        """Return how the home of `node` is called here, empty if it is no member (names.py)."""
        return self._shown_names.get(node, "")

    def nodes_called(self, text: str) -> list[str]:
        """Return the members that `text`, an id or a name, may mean (names.py)."""
        return nodes_called(text, self._shown_names)

    @cached_property
    def _shown_names(self) -> dict[str, str]:
        return shown_names((one.node_id, one.display_name) for one in self.members)

    def member(self, node: str) -> Member | None:
        """Return the member with this node id."""
        return self._members.get(node)

    def invite(self, key: str) -> Invite | None:
        """Return the open invite with this invite key, expired or not."""
        return self._invites.get(key)

    def is_revoked(self, node: str) -> bool:
        """Return whether `node` was revoked and has not come back."""
        return node in self._revoked

    def stands_alone(self, node: str) -> bool:
        """Return whether nobody answers for what `node` does: it is the root, or trusted."""
        return node == self.community_id or RANK[self.level(node)] >= RANK["trusted"]

    def line(self, node: str) -> tuple[str, ...]:
        """Return `node` and those who answer for what it does, the last one for all of them.

        They are its inviter, that one's inviter and so on, up to the plain member whom one invited who was
        trusted then, or is now.
        """
        found, state = [node], self.folded
        while found[-1] not in state.free and not self.stands_alone(found[-1]):
            inviter = state.inviters.get(found[-1], "")
            if not inviter or inviter in found or self.stands_alone(inviter):
                break
            found.append(inviter)
        return tuple(found)

    def answerable(self, node: str) -> str:
        """Return who answers for all that `node` does: the last of its line.

        For the key of an open invite, which costs nothing, it is the last of its inviter's line.
        """
        return self._accounts_of(node)[0]

    def account(self, node: str) -> str:
        """Return the account to which the calls of `node` are counted.

        All keys of open invites of one line share one, `<last of the line>//invites`.
        """
        return self._accounts_of(node)[1]

    def _accounts_of(self, node: str) -> tuple[str, str]:
        """Return who answers for `node`, and its account; looked up for each call of another node."""
        found = self._accounts.get(node)
        if found is None:
            invite = None if node in self._members else self._invites.get(node)
            last = self.line(node if invite is None else invite.inviter)[-1]
            found = last, node if invite is None else f"{last}//invites"
            if node in self._members or invite is not None:  # others are without number
                self._accounts[node] = found
        return found

    @cached_property
    def _accounts(self) -> dict[str, tuple[str, str]]:
        return {}

    def came_by(self, node: str) -> tuple[str, ...]:
        """Return the plain members whom `node` invited, those whom they invited, and so on, in that order.

        Without those who were trusted since, and whom these invited.
        """
        found, invited = [node], dict[str, list[str]]()
        for one, inviter in self.folded.inviters.items():
            invited.setdefault(inviter, []).append(one)
        for inviter in found:
            came = invited.get(inviter, ())
            found += (one for one in came if one not in found and not self.stands_alone(one))
        return tuple(one for one in found[1:] if self.member(one) is not None)

    def revocation_of(self, node: str) -> str:
        """Return the hash of the event that revokes `node`; empty if there is none."""
        found = self.folded.revoked.get(node)
        return "" if found is None else found.event_hash

    def owner(self, principal: str) -> str:
        """Return the person whose node it is or was; for all others, guests too, the principal itself."""
        return self.folded.persons.owners.get(principal, principal)

    def principals(self, principal: str) -> frozenset[str]:
        """Return the principals whose works belong to the owner of `principal`, itself among them.

        They are the nodes that are or were devices of that person, each with the pages of its owner.
        """
        person = self.person(self.owner(principal))
        devices = () if person is None else (*person.devices, *person.former)
        nodes = {one.key for one in devices if one.kind == "node"}
        if not nodes and "/" not in principal:
            nodes = {principal}
        return frozenset({principal, *nodes, *(f"{node}/{OWNER_GUEST}" for node in nodes)})

    @property
    def doors(self) -> tuple[Door, ...]:
        """The open doors of members, in the order of opening."""
        return tuple(one for one in self.folded.doors.by_node.values() if one.node_id in self._members)

    @property
    def persons(self) -> tuple[Person, ...]:
        """The persons with their devices."""
        return tuple(self.folded.persons.people.values())

    def person(self, person: str) -> Person | None:
        """Return the person with this id."""
        return self.folded.persons.people.get(person)

    def person_of(self, key: str) -> str:
        """Return the person of whom `key` is a device now; empty if there is none."""
        return "" if self.is_revoked(key) else self.folded.persons.devices.get(key, "")

    def devices(self, person: str) -> tuple[Device, ...]:
        """Return the devices that the person has now."""
        found = self.person(person)
        return () if found is None else tuple(one for one in found.devices if not self.is_revoked(one.key))

    def is_device(self, key: str, person: str) -> bool:
        """Return whether `key` is a device of the person now."""
        return bool(person) and self.person_of(key) == person

    def is_removed_device(self, key: str) -> bool:
        """Return whether `key` is a page, phone or program that was a person's device and is none now."""
        return key in self.folded.persons.ended

    def person_name(self, person: str) -> str:
        """Return how the person is called here: as its first node is; empty if it has none."""
        return next((self.shown_name(one.key) for one in self.devices(person) if one.kind == "node"), "")

    def heads(self) -> Heads:
        """Return the heads of the events held, by which others find those missing here."""
        return self.history.heads()

    def lacks(self, heads: Mapping[str, Sequence[str]]) -> bool:
        """Return whether a node with `heads` holds events that are not held here."""
        return self.history.lacks(heads)

    def missing(self, heads: Mapping[str, Sequence[str]]) -> tuple[CommunityEvent, ...]:
        """Return the events that a node with `heads` may lack, in an order for merging one by one.

        Raises:
            HearthNetError: `bad_request` if `heads` are malformed.
        """
        return self.history.missing(heads)

    def missing_before(self, events: Iterable[CommunityEvent]) -> tuple[CommunityEvent, ...]:
        """Return those of `events` that cannot be merged yet, since they build on missing ones."""
        return self.history.extended(events)[1]

    def next(self, author: str) -> tuple[int, str, int]:
        """Return sequence, previous and lamport of the next event of `author`."""
        return self.history.next(author, self.head_lamport)

    def removes(self, event: CommunityEvent) -> bool:
        """Return whether a held event is a removal that counts."""
        return bool(removal_target(event)) and not self.flaw(event)

    def flaw(self, event: CommunityEvent) -> str:
        """Return the reason for which a held event does not count; empty if it does."""
        return self.folded.flaws.get(event.hash, "")

    @cached_property
    def history(self) -> History:
        """The events, indexed."""
        return History(self.community_id, self.events)

    @cached_property
    def folded(self) -> RosterReplay:
        """The state derived from the events, with all that the document leaves out."""
        return replay(self.history)

    @cached_property
    def proven(self) -> Roster:
        """The roster as its events say, without revocations that `pending_removals` anticipates."""
        return self

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
    """Return the entry of `identity`, with its login bound to it."""
    return _member(events.entry_of(identity, display_name), level, rfc3339(now_ms))


def create(root: Identity, first: Member, name: str, now_ms: int) -> Roster:
    """Found a community with `first` as its first anchor; the roster is not sealed."""
    founder = EventEntry(
        first.node_id, first.display_name, first.login, first.login_signature, first.login_proof
    )
    event = events.write(
        root,
        root.node_id,
        events.CREATED,
        events.Created(name=name, founder=founder),
        place=(1, "", 1),
        now_ms=now_ms,
    )
    return derived(History(root.node_id, [event]))


def derive(community_id: str, events: Iterable[CommunityEvent]) -> Roster:
    """Derive the roster of `events`, verified from the community id upward.

    For a node that holds none yet. Invalid events are left out, as in `merge`.

    Raises:
        HearthNetError: `bad_request` if none of them founds the community.
    """
    history, _ = History(community_id).extended(events)
    return derived(history)


def merge(roster: Roster, events: Iterable[CommunityEvent]) -> Roster:
    """Return the roster with all valid ones of `events`.

    The result has no seal if events were added, otherwise it is `roster` itself. Only signatures of events
    that are not held yet are checked. Invalid events, and those that build on missing ones (see
    `Roster.missing_before`), are left out.
    """
    history, _ = roster.history.extended(events)
    return roster if history is roster.history else derived(history)


def seal(roster: Roster, identity: Identity) -> Roster:
    """Return the roster with the seal of `identity`, which saves deriving it again."""
    proven = roster.proven
    sealed = signed_document.sign(
        msgspec.structs.replace(proven, signed_by=identity.node_id), identity, PURPOSE
    )
    for name in ("history", "folded"):  # the derived values do not depend on the seal
        if name in proven.__dict__:
            sealed.__dict__[name] = proven.__dict__[name]
    return sealed


def encode(roster: Roster) -> bytes:
    """Return the roster as stored in a file: JSON, indented for people."""
    return msgspec.json.format(msgspec.json.encode(roster), indent=1) + b"\n"


def decode(data: bytes, trusted_signer: str = "") -> Roster:
    """Read the roster in `data`, verified by its events from the community id upward.

    With the seal of `trusted_signer`, the reader's own node, the events are not verified again. An invalid
    seal is ignored: a version with fewer rules may have sealed another form of the same roster. One with a
    removed device as a member was sealed by a version without persons, and is derived again.

    Raises:
        HearthNetError: `bad_request` if it is not a roster; `invalid_signature` if it was altered.
    """
    try:
        roster = read_json(data, _DECODER)
        is_own = trusted_signer and roster.signed_by == trusted_signer
        if not is_own or not signed_document.is_signed(roster, trusted_signer, PURPOSE):
            refuse_repeated_keys(data)
            _prove(roster)
    except HearthNetError as error:
        raise HearthNetError(error.code, f"is no roster, or was altered: {error}") from error
    removed = (one.data.get("device") for one in roster.events if one.event_type == DEVICE_REMOVED)
    return derived(roster.history) if any(device in roster._members for device in removed) else roster


def _prove(roster: Roster) -> None:
    history, _ = History(roster.community_id).extended(roster.events)
    if len(history.events) != len(roster.events):
        for event in roster.events:
            event_validation.validate_event(event, roster.community_id)
        raise HearthNetError("bad_request", "events that others build on are not in it")
    found = derived(history)
    if msgspec.structs.replace(found, signed_by=roster.signed_by, signature=roster.signature) != roster:
        raise HearthNetError("invalid_signature", "its members are not what its events say")


def derived(history: History) -> Roster:
    """Return the roster that the events of `history` come to; it is not sealed.

    Raises:
        HearthNetError: `bad_request` if none of them founds the community.
    """
    state = replay(history)
    logins = {standing.entry.login for standing in state.members.values()}
    invites: dict[str, Invite] = {}
    for one in state.open_invites():
        if one.content.login not in logins:
            logins.add(one.content.login)
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


def _member(entry: EventEntry, level: Level, added_at: str) -> Member:
    return Member(**msgspec.structs.asdict(entry), level=level, added_at=added_at)


def _invite(event: CommunityEvent, content: events.Invited) -> Invite:
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
