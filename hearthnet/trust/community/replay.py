"""The judgement of a community's events, each by the state before it (trust/community/reducer.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from hearthnet.core.times import from_rfc3339
from hearthnet.trust.community.events import (
    INVITED,
    RANK,
    Admitted,
    CommunityEvent,
    CoSigner,
    Created,
    Demoted,
    EventEntry,
    Invited,
    Joined,
    Level,
    Policy,
    PolicyUpdated,
    Promoted,
    Revoked,
    Withdrawn,
)
from hearthnet.trust.community.history import History
from hearthnet.trust.community.quorum import min_rank, required_signatures
from hearthnet.trust.community.removals import Removal, cosigned_terms, executed, known_of, rank_limits

MAX_LEAP: Final = 1_000_000
"""Maximum step of the community's lamport by one event; otherwise a single event could use up all numbers."""
MAX_OPEN_INVITES: Final = 100
"""Maximum of unused invites per member: each is a login in the configuration of every server."""
SKEW_MS: Final = 60_000

_ROOT: Final = 99
_MEMBER, _TRUSTED, _ANCHOR = RANK["member"], RANK["trusted"], RANK["anchor"]
LEVELS: Final[dict[int, Level]] = {_MEMBER: "member", _TRUSTED: "trusted", _ANCHOR: "anchor"}
_FAR: Final = 2**31


class MemberState(msgspec.Struct):
    """A member; `sponsor` made it trusted or more, `depth` promotions away from the founder."""

    entry: EventEntry
    rank: int
    added_at: str
    sponsor: str = ""
    depth: int = _FAR


class OpenInvite(msgspec.Struct):
    """An invite at its `place` in the order, with the highest rank and all signers behind it.

    `signers` include its author; `able` nodes other than the invitee could have signed; `by_trusted` tells
    whether its author was trusted there.
    """

    event: CommunityEvent
    content: Invited
    place: int
    rank: int
    signers: set[str]
    able: int
    by_trusted: bool
    open: bool = True


class RevokedMember(msgspec.Struct, frozen=True):
    """A revoked node: by which event, at which place, when by its author's clock, and why."""

    place: int
    event_hash: str
    revoked_at: str
    reason: str


class _Flaw(Exception):
    """The reason for which an event does not count."""


class RosterReplay:
    """The state after all events of `history` if only the removals in `decided` take effect.

    `reached` is the highest lamport; `flaws` has the reason for each event that does not count; `inviters`
    has who made the last invite of each node that was ever admitted, `free` the nodes that a trusted one
    invited last.
    """

    def __init__(self, history: History, decided: Sequence[Removal]) -> None:
        self.name = ""
        self.created_at = ""
        self.policy = Policy()
        self.members: dict[str, MemberState] = {}
        self._having: Counter[int] = Counter()
        self.revoked: dict[str, RevokedMember] = {}
        self.invites: dict[str, OpenInvite] = {}
        self.reached = 0
        self.flaws: dict[str, str] = {}
        self.removals: list[Removal] = []
        self._history = history
        self._root = history.community_id
        self.founder = ""
        self.inviters: dict[str, str] = {}
        self.free: set[str] = set()
        self._logins: dict[str, str] = {}
        self._open: Counter[str] = Counter()
        self._named: dict[tuple[str, str], OpenInvite] = {}
        self._asked: dict[str, tuple[Joined, OpenInvite]] = {}
        self._decided = {removal.event.hash for removal in decided}
        self._carried_out = executed(decided)
        self._limits = rank_limits(decided)
        self._covered: dict[tuple[int, str], frozenset[str]] = {}
        self._policies = [
            (place, event.content)
            for place, event in enumerate(history.events)
            if isinstance(event.content, PolicyUpdated)
        ]
        self._run()

    def _run(self) -> None:
        judges: dict[type, Callable[[int, CommunityEvent, Any], None]] = {
            Created: self._created,
            Invited: self._invited,
            Joined: self._joined,
            Admitted: self._admitted,
            Promoted: self._promoted,
            Demoted: self._removed,
            Revoked: self._removed,
            Withdrawn: self._withdrawn,
            PolicyUpdated: self._updated,
        }
        for place, event in enumerate(self._history.events):
            try:
                if event.lamport > self.reached + MAX_LEAP:
                    raise _Flaw("its lamport is far beyond the events before it")
                self.reached = event.lamport
                judge = judges.get(type(event.content))
                if judge is None:
                    raise _Flaw("it is of a kind unknown here")
                judge(place, event, event.content)
            except _Flaw as flaw:
                self.flaws[event.hash] = str(flaw)

    # Rights of the author of an event

    def _rank(self, node: str) -> int:
        if node == self._root:
            return _ROOT
        standing = self.members.get(node)
        return 0 if standing is None else standing.rank

    def _author_rank(self, place: int, event: CommunityEvent) -> int:
        """Return the author's rank here, lowered by later removals that did not know this event."""
        rank = self._rank(event.author)
        for until, known, limit in self._limits.get(event.author, ()):
            if place < until and event.hash not in known:
                rank = min(rank, limit)
        return rank

    def _policy_for(self, place: int, event: CommunityEvent) -> Policy:
        """Return the policy here, or a later one that did not know this event."""
        policy = self.policy
        for at, update in self._policies:
            if at > place and event.hash not in self._known_at(at, event.author, update):
                policy = update.policy
        return policy

    def _known_at(self, place: int, author: str, update: PolicyUpdated) -> frozenset[str]:
        known = self._covered.get((place, author))
        if known is None:
            known = self._history.below(author, update.heads.get(author, ()))
            self._covered[place, author] = known
        return known

    def _may_invite(self, place: int, event: CommunityEvent) -> int:
        """Return the author's rank; a flaw if it may not invite."""
        rank = self._author_rank(place, event)
        wanted = _MEMBER if rank == _ROOT else min_rank(self._policy_for(place, event), INVITED)
        if rank < wanted:
            raise _Flaw(f"to invite takes level {LEVELS[wanted]}, which its author did not have")
        return rank

    def _agreeing(self, author: str, co_signers: Sequence[CoSigner], least: int, target: str) -> set[str]:
        """Return the author and the co-signers of at least that rank, without the target."""
        agreeing = {one.node_id for one in co_signers if self._rank(one.node_id) >= least}
        return (agreeing | {author}) - {target}

    def _able(self, least: int, target: str) -> int:
        """Return the number of nodes other than the target that have at least that rank."""
        of_target = self.members.get(target)
        having = sum(count for rank, count in self._having.items() if rank >= least)
        return having - (of_target is not None and of_target.rank >= least)

    def _set_rank(self, standing: MemberState, rank: int) -> None:
        self._having[standing.rank] -= 1
        self._having[rank] += 1
        standing.rank = rank

    # Founding, inviting and joining

    def _created(self, place: int, event: CommunityEvent, content: Created) -> None:
        if self.name:
            raise _Flaw("the community is founded already")
        self.name, self.created_at, self.policy = content.name, event.wall_clock, content.policy
        self.founder = content.founder.node_id
        self._let_in(content.founder, event.wall_clock, _ANCHOR, 0)

    def _let_in(self, entry: EventEntry, added_at: str, rank: int, depth: int) -> None:
        self.members[entry.node_id] = MemberState(entry, rank, added_at, depth=depth)
        self._having[rank] += 1
        self._logins[entry.login] = entry.node_id
        self.revoked.pop(entry.node_id, None)

    def _invited(self, place: int, event: CommunityEvent, content: Invited) -> None:
        own = self._may_invite(place, event)
        policy, invitee = self._policy_for(place, event), content.invitee_node_id
        least = min_rank(policy, INVITED)
        signers = self._agreeing(event.author, content.co_signers, least, invitee)
        rank = max([own, *map(self._rank, signers - {event.author})])
        invite = OpenInvite(event, content, place, rank, signers, self._able(least, invitee), own >= _TRUSTED)
        if objection := self._lack(invite, policy):
            raise _Flaw(objection)
        replaced = self._named.get((event.author, invitee)) if invitee else None
        if self._open[event.author] - (replaced is not None and replaced.open) >= MAX_OPEN_INVITES:
            raise _Flaw(f"its author had {MAX_OPEN_INVITES} open invites; withdraw some")
        if replaced is not None:
            self._close(replaced)
        self._open[event.author] += 1
        self.invites[event.hash] = self._named[event.author, invitee] = invite

    def _lack(self, invite: OpenInvite, policy: Policy) -> str:
        """Return the objection of `policy` to the invite; empty if there is none."""
        wanted = required_signatures(policy, INVITED, invite.able)
        if wanted == 1 or invite.event.author == self._root:
            return ""
        if not invite.content.invitee_node_id:
            return f"an invite that takes {wanted} signatures names the node it is for"
        if len(invite.signers) < wanted:
            return f"it takes {wanted} signatures of members who may invite and has {len(invite.signers)}"
        return ""

    def open_invites(self) -> tuple[OpenInvite, ...]:
        """Return the invites that can still be used under the present rules."""
        return tuple(one for one in self.invites.values() if one.open and not self._lack(one, self.policy))

    def _close(self, invite: OpenInvite) -> None:
        self._open[invite.event.author] -= invite.open
        invite.open = False

    def _joined(self, place: int, event: CommunityEvent, content: Joined) -> None:
        invite = self.invites.get(content.invite_event_hash)
        if invite is None:
            raise _Flaw("its invite does not count")
        if invite.content.invitee_node_id not in ("", event.author):
            raise _Flaw("the invite is for another node")
        if from_rfc3339(event.wall_clock) > invite.content.expires_at + SKEW_MS:
            raise _Flaw("the invite had expired")
        self._asked[event.hash] = (content, invite)

    def _admitted(self, place: int, event: CommunityEvent, content: Admitted) -> None:
        self._may_invite(place, event)
        request = self._asked.get(content.joined_event_hash)
        if request is None or request[0].member.node_id != content.node_id:
            raise _Flaw("nobody asked to join by that event, or the request does not count")
        entry, invite = request[0].member, request[1]
        if objection := self._lack(invite, self._policy_for(place, event)):
            raise _Flaw(f"its invite does not count any more: {objection}")
        if self._rank(entry.node_id):
            raise _Flaw("that node is a member already")
        if entry.login in self._logins:
            raise _Flaw("its login is another member's")
        revoked = self.revoked.get(entry.node_id)
        if revoked is not None and not _recalls(invite, entry.node_id, revoked):
            raise _Flaw("a revoked node comes back only by an invite of a trusted member that names it")
        self._close(invite)
        self.inviters[entry.node_id] = invite.event.author
        (self.free.add if invite.by_trusted else self.free.discard)(entry.node_id)
        self._let_in(entry, event.wall_clock, _MEMBER, _FAR)

    def _withdrawn(self, place: int, event: CommunityEvent, content: Withdrawn) -> None:
        invite = self.invites.get(content.invite_event_hash)
        if invite is None or not invite.open:
            raise _Flaw("there is no such open invite")
        if self._author_rank(place, event) < (_MEMBER if event.author == invite.event.author else _TRUSTED):
            raise _Flaw("an invite is withdrawn by its inviter or by a trusted member")
        self._close(invite)

    # Levels and rules

    def _promoted(self, place: int, event: CommunityEvent, content: Promoted) -> None:
        new = RANK[content.new_level]
        if self._author_rank(place, event) < new:
            raise _Flaw(f"to promote to {content.new_level} takes that level, which its author did not have")
        target = self.members.get(content.target_node_id)
        if target is None:
            raise _Flaw("the target is no member")
        depth = self._depth(event.author) + 1
        if depth < target.depth:
            target.sponsor, target.depth = event.author, depth
        self._set_rank(target, max(target.rank, new))

    def _updated(self, place: int, event: CommunityEvent, content: PolicyUpdated) -> None:
        self.policy = content.policy

    def _removed(self, place: int, event: CommunityEvent, content: Demoted | Revoked) -> None:
        if event.hash in self._decided:
            if place > self._carried_out.get(cosigned_terms(content), place):
                raise _Flaw("what its co-signers agreed to was carried out before; it takes new signatures")
            self._remove(place, event, content)
            return
        self._check_target(content)
        signers = self._signers(place, event, content)
        weight, relies_on = self._weigh(signers)
        known = known_of(self._history, event, content)
        self.removals.append(Removal(place, event, content, known, weight, relies_on))

    def _remove(self, place: int, event: CommunityEvent, content: Demoted | Revoked) -> None:
        target = self.members.get(content.target_node_id)
        if isinstance(content, Demoted):
            if target is not None and target.rank > RANK[content.new_level]:
                self._keep_an_anchor(target)
                self._set_rank(target, RANK[content.new_level])
                target.depth = target.depth if target.rank >= _TRUSTED else _FAR
            return
        if target is not None:
            del self.members[content.target_node_id]
            self._having[target.rank] -= 1
            del self._logins[target.entry.login]
        for invite in self.invites.values():
            invite.signers.discard(content.target_node_id)
            if invite.event.author == content.target_node_id:
                self._close(invite)
        self.revoked[content.target_node_id] = RevokedMember(
            place, event.hash, event.wall_clock, content.reason
        )

    def _check_target(self, content: Demoted | Revoked) -> None:
        target = self.members.get(content.target_node_id)
        if isinstance(content, Revoked):
            if target is None and content.target_node_id not in self.revoked:
                raise _Flaw("the target is no member")
        elif target is None or target.rank <= RANK[content.new_level]:
            raise _Flaw(f"the target is no member above {content.new_level}")
        else:
            self._keep_an_anchor(target)

    def _keep_an_anchor(self, target: MemberState) -> None:
        if target.rank == _ANCHOR and self._having[_ANCHOR] == 1:
            raise _Flaw("the last anchor stays one")

    def _signers(self, place: int, event: CommunityEvent, content: Demoted | Revoked) -> set[str]:
        """Return the signers that count if they are enough; a flaw if not."""
        author, target = event.author, content.target_node_id
        rank = self._author_rank(place, event)
        if rank == _ROOT or (author == target and rank >= _MEMBER):
            return {author}
        if target == self.founder:
            raise _Flaw("the founder is removed by the root or by itself alone")
        if rank < _TRUSTED:
            raise _Flaw("to remove others takes level trusted, which its author did not have")
        signers = self._agreeing(author, content.co_signers, _TRUSTED, target)
        policy = self._policy_for(place, event)
        wanted = required_signatures(policy, event.event_type, self._able(_TRUSTED, target))
        if len(signers) < wanted:
            raise _Flaw(f"it takes {wanted} signatures of trusted members and has {len(signers)}")
        return signers

    def _weigh(self, signers: set[str]) -> tuple[tuple[int, ...], frozenset[str]]:
        """Return the weight of a removal with these signers, and the nodes that it relies on.

        The lightest wins: the root's, then one with more lines of promotion, then one nearer to the founder.
        """
        lines = [self._line(signer) for signer in signers]
        if self._root in signers:
            return (-_FAR,), frozenset()
        heads = {line[-1] for line in lines}
        depths = sorted(map(self._depth, signers))
        return (-len(heads), *depths, _FAR), frozenset().union(*lines)

    def _line(self, node: str) -> list[str]:
        """List `node` and its sponsors up to the one chosen by the founder or the root."""
        line = [node]
        while (sponsor := self._sponsor(line[-1])) and sponsor not in line:
            line.append(sponsor)
        return line

    def _sponsor(self, node: str) -> str:
        standing = self.members.get(node)
        sponsor = "" if standing is None else standing.sponsor
        return "" if sponsor in (self._root, self.founder) else sponsor

    def _depth(self, node: str) -> int:
        standing = self.members.get(node)
        return -1 if node == self._root else _FAR if standing is None else standing.depth


def _recalls(invite: OpenInvite, node: str, revoked: RevokedMember) -> bool:
    """Return whether the invite readmits `node` after it was `revoked`.

    Co-signers name the revocation; otherwise their signatures would undo every later one, too.
    """
    content = invite.content
    agreed = not content.co_signers or content.recalls == revoked.event_hash
    is_named = content.invitee_node_id == node
    return agreed and is_named and invite.rank >= _TRUSTED and invite.place > revoked.place
