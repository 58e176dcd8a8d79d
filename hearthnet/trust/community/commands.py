"""A member's acts in its community, each made as one event and checked against the roster.

Each method returns the signed event, which the caller stores, merges and passes on.
"""

from __future__ import annotations

from typing import Required, TypedDict, Unpack

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.community import (
    doors,
    events,
)
from hearthnet.trust.community.doors import DoorClosed, DoorOpened
from hearthnet.trust.community.events import (
    RANK,
    Admitted,
    CommunityEvent,
    CoSigner,
    Demoted,
    Policy,
    PolicyUpdated,
    Promoted,
    Revoked,
    Withdrawn,
)
from hearthnet.trust.community.names import check_name
from hearthnet.trust.community.person_commands import PersonAuthor
from hearthnet.trust.community.roster import Level, Member
from hearthnet.trust.keys import Identity


class Terms(TypedDict, total=False):
    """The terms of a change of a member: the id of the call that makes it, and those who agreed to it."""

    client_id: Required[str]
    co_signers: tuple[CoSigner, ...]


class CommunityAuthor(PersonAuthor):
    """The acts of `author` in the community of the roster `held`, with those of persons.

    Raises:
        HearthNetError: In all methods, `unauthorized` if the event would not count, with the reason;
            `not_found` if there is no such member or invite.
    """

    def invite(
        self,
        key: Identity,
        *,
        display_name: str,
        expires_at: int,
        now_ms: int,
        invitee: str = "",
        client_id: str = "",
        co_signers: tuple[CoSigner, ...] = (),
    ) -> CommunityEvent:
        """Make an invite with the one-time `key`, valid until `expires_at`.

        `expires_at` is in milliseconds, at most 30 days from now. The invite recalls the revocation
        of `invitee`, if there is one.

        Raises:
            HearthNetError: `bad_request` for a name that a home may not give itself; `invalid_signature` if
                a co-signer has signed other terms; `unauthorized`.
        """
        if display_name:
            check_name(display_name)
        content = events.invited(
            self._held.community_id,
            self._author.node_id,
            key,
            display_name=display_name,
            expires_at=expires_at,
            invitee=invitee,
            client_id=client_id,
            co_signers=co_signers,
            recalls=self._held.revocation_of(invitee),
        )
        return self._act(events.INVITED, content, now_ms)

    def admit(self, joined: CommunityEvent, now_ms: int) -> CommunityEvent:
        """Admit the node whose `joined` event is in `held` already.

        Does not check that its invite is still open; `invites.admit` does.
        """
        content = Admitted(joined_event_hash=joined.hash, node_id=joined.author)
        return self._act(events.ADMITTED, content, now_ms)

    def withdraw(self, event_id: str, now_ms: int) -> CommunityEvent:
        """Withdraw the open invite with this event id.

        Raises:
            HearthNetError: `not_found` if there is no such invite; `unauthorized`.
        """
        found = next((one for one in self._held.invites if one.event_id == event_id), None)
        if found is None:
            raise HearthNetError(
                "not_found", "there is no such open invite: it was used or withdrawn, or never was"
            )
        return self._act(events.WITHDRAWN, Withdrawn(invite_event_hash=found.event_hash), now_ms)

    def promote(
        self, target: str, new_level: Level, *, now_ms: int, **terms: Unpack[Terms]
    ) -> CommunityEvent:
        """Raise `target` to trusted or anchor.

        Raises:
            HearthNetError: `not_found` if it is no member; `bad_request` if it has that level already;
                `unauthorized`.
        """
        level = self._member(target).level
        if new_level == "member" or RANK[level] >= RANK[new_level]:
            raise HearthNetError("bad_request", f"{ids.short_id(target)} is {level} already")
        content = Promoted(target_node_id=target, new_level=new_level, **terms)
        return self._act(events.PROMOTED, content, now_ms)

    def demote(self, target: str, new_level: Level, *, now_ms: int, **terms: Unpack[Terms]) -> CommunityEvent:
        """Lower `target` to trusted or member; its earlier events keep their effect.

        Raises:
            HearthNetError: `not_found` if it is no member; `bad_request` if it has no higher level;
                `unauthorized`.
        """
        level = self._member(target).level
        if new_level == "anchor" or RANK[level] <= RANK[new_level]:
            raise HearthNetError("bad_request", f"{ids.short_id(target)} is no more than {level}")
        heads = self._ends(target)
        content = Demoted(target_node_id=target, new_level=new_level, target_heads=heads, **terms)
        return self._act(events.DEMOTED, content, now_ms)

    def revoke(self, target: str, reason: str, *, now_ms: int, **terms: Unpack[Terms]) -> CommunityEvent:
        """Revoke `target`; its earlier events keep their effect.

        Raises:
            HearthNetError: `not_found` if it never was a member; `unauthorized`.
        """
        if not self._held.is_revoked(target):
            self._member(target)
        heads = self._ends(target)
        content = Revoked(target_node_id=target, reason=reason, target_heads=heads, **terms)
        return self._act(events.REVOKED, content, now_ms)

    def set_policy(self, policy: Policy, now_ms: int) -> CommunityEvent:
        """Replace the rules; only the community's root may."""
        if self._author.node_id != self._held.community_id:
            raise HearthNetError(
                "unauthorized", "the rules of a community are changed with its root key alone"
            )
        # Events of others do not count, whatever the rules: anybody could add any number of such authors.
        held, members = self._held, self._held.folded
        authors = {held.community_id, members.founder, *members.inviters} & held.history.tips.keys()
        heads = {author: self._ends(author) for author in sorted(authors)}
        return self._act(events.POLICY, PolicyUpdated(policy=policy, heads=heads), now_ms)

    def open_door(self, address: str, route: str, key: str, now_ms: int) -> CommunityEvent:
        """Open the door of this node, in place of the one that it has open.

        Homes link to `address`, other doors to `route`; `key` is that of its certificate, as an id.

        Raises:
            HearthNetError: `bad_request` for an address or key that is none; `unauthorized`.
        """
        return self._act(doors.OPENED, DoorOpened(address=address, route=route, key=key), now_ms)

    def close_door(self, node: str, now_ms: int) -> CommunityEvent:
        """Close the door of `node`.

        Raises:
            HearthNetError: `not_found` if it has none open; `unauthorized`.
        """
        if all(one.node_id != node for one in self._held.doors):
            raise HearthNetError("not_found", f"{ids.short_id(node)} has no open door")
        return self._act(doors.CLOSED, DoorClosed(node_id=node), now_ms)

    def _member(self, target: str) -> Member:
        found = self._held.member(target)
        if found is None:
            raise HearthNetError("not_found", f"{target} is no member of {self._held.name}")
        return found
