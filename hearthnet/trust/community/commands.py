"""A member's acts in its community, each made as one event and checked against the roster.

Each method returns the signed event, which the caller stores, merges and passes on.
"""

from __future__ import annotations

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.community import event_validation, events, roster
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
from hearthnet.trust.community.history import MAX_ENDS
from hearthnet.trust.community.roster import Level, Member, Roster
from hearthnet.trust.keys import Identity


class CommunityAuthor:
    """The acts of `author` in the community of the roster `held`.

    Raises:
        HearthNetError: In all methods, `unauthorized` if the event would not count, with the reason;
            `not_found` if there is no such member or invite.
    """

    def __init__(self, held: Roster, author: Identity) -> None:
        self._held = held
        self._author = author

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
            HearthNetError: `invalid_signature` if a co-signer has signed other terms; `unauthorized`.
        """
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
        return _act(self._held, self._author, events.INVITED, content, now_ms)

    def admit(self, joined: CommunityEvent, now_ms: int) -> CommunityEvent:
        """Admit the node whose `joined` event is in `held` already.

        Does not check that its invite is still open; `invites.admit` does.
        """
        content = Admitted(joined_event_hash=joined.hash, node_id=joined.author)
        return _act(self._held, self._author, events.ADMITTED, content, now_ms)

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
        return _act(
            self._held, self._author, events.WITHDRAWN, Withdrawn(invite_event_hash=found.event_hash), now_ms
        )

    def promote(
        self,
        target: str,
        new_level: Level,
        *,
        client_id: str,
        now_ms: int,
        co_signers: tuple[CoSigner, ...] = (),
    ) -> CommunityEvent:
        """Raise `target` to trusted or anchor.

        Raises:
            HearthNetError: `not_found` if it is no member; `bad_request` if it has that level already;
                `unauthorized`.
        """
        level = _known(self._held, target).level
        if new_level == "member" or RANK[level] >= RANK[new_level]:
            raise HearthNetError("bad_request", f"{ids.short_id(target)} is {level} already")
        content = Promoted(
            target_node_id=target, new_level=new_level, client_id=client_id, co_signers=co_signers
        )
        return _act(self._held, self._author, events.PROMOTED, content, now_ms)

    def demote(
        self,
        target: str,
        new_level: Level,
        *,
        client_id: str,
        now_ms: int,
        co_signers: tuple[CoSigner, ...] = (),
    ) -> CommunityEvent:
        """Lower `target` to trusted or member; its earlier events keep their effect.

        Raises:
            HearthNetError: `not_found` if it is no member; `bad_request` if it has no higher level;
                `unauthorized`.
        """
        level = _known(self._held, target).level
        if new_level == "anchor" or RANK[level] <= RANK[new_level]:
            raise HearthNetError("bad_request", f"{ids.short_id(target)} is no more than {level}")
        content = Demoted(
            target_node_id=target,
            new_level=new_level,
            client_id=client_id,
            co_signers=co_signers,
            target_heads=_ends(self._held, target),
        )
        return _act(self._held, self._author, events.DEMOTED, content, now_ms)

    def revoke(
        self,
        target: str,
        reason: str,
        *,
        client_id: str,
        now_ms: int,
        co_signers: tuple[CoSigner, ...] = (),
    ) -> CommunityEvent:
        """Revoke `target`; its earlier events keep their effect.

        Raises:
            HearthNetError: `not_found` if it never was a member; `unauthorized`.
        """
        if not self._held.is_revoked(target):
            _known(self._held, target)
        content = Revoked(
            target_node_id=target,
            reason=reason,
            client_id=client_id,
            co_signers=co_signers,
            target_heads=_ends(self._held, target),
        )
        return _act(self._held, self._author, events.REVOKED, content, now_ms)

    def set_policy(self, policy: Policy, now_ms: int) -> CommunityEvent:
        """Replace the rules; only the community's root may."""
        if self._author.node_id != self._held.community_id:
            raise HearthNetError(
                "unauthorized", "the rules of a community are changed with its root key alone"
            )
        heads = {author: _ends(self._held, author) for author in self._held.history.tips}
        return _act(
            self._held, self._author, events.POLICY, PolicyUpdated(policy=policy, heads=heads), now_ms
        )


def _known(held: Roster, target: str) -> Member:
    found = held.member(target)
    if found is None:
        raise HearthNetError("not_found", f"{target} is no member of {held.name}")
    return found


def _ends(held: Roster, author: str) -> tuple[str, ...]:
    """Return the ends of the author's chain, the longest first, as many as an event may name."""
    return tuple(tip.hash for tip in reversed(held.history.tips.get(author, ())))[:MAX_ENDS]


def _act(
    held: Roster, author: Identity, event_type: str, content: events.Data, now_ms: int
) -> CommunityEvent:
    event = events.write(
        author,
        held.community_id,
        event_type,
        content,
        place=held.next(author.node_id),
        now_ms=now_ms,
    )
    event_validation.validate_event(event, held.community_id)
    after = roster.merge(held, [event])
    flaw = "the author is no member" if after is held else after.flaw(event)
    if flaw:
        raise HearthNetError("unauthorized", flaw)
    return event
