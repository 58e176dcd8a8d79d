"""What the events of a community come to: one pure function of the set (docs/decisions/0040).

Events are judged in their order (lamport, event id, hash), each by the levels that the events before it gave.
An event that is not allowed changes nothing. Two things reach back, so that nobody gains by claiming an
early lamport:

- a revocation or demotion names the target's events that its author knew. All others of the target are judged
  as if they came after it, whatever lamport they claim;
- a change of policy does the same for the events of everyone.

Where revocations and demotions exclude each other, because each one's author had not seen the other, the one
with the signer nearest to the founder stands, by the line of promotions; then it is done again without what
that one excludes. What has been decided so stays decided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from hearthnet.errors import HearthNetError
from hearthnet.times import from_rfc3339
from hearthnet.trust import community
from hearthnet.trust.community import (
    RANK,
    Admitted,
    CommunityEvent,
    Created,
    Demoted,
    Entry,
    Invited,
    Joined,
    Level,
    Policy,
    PolicyUpdated,
    Promoted,
    Revoked,
    Withdrawn,
)
from hearthnet.trust.history import History

MAX_LEAP: Final = 1_000_000
"""By how much an event may raise the community's lamport: else one event could use up all numbers."""
MAX_OPEN_INVITES: Final = 100
"""Of one member, neither used nor withdrawn: each is a login in the configuration of every server."""
SKEW_MS: Final = 60_000

_ROOT_RANK: Final = 99
_MEMBER, _TRUSTED, _ANCHOR = RANK["member"], RANK["trusted"], RANK["anchor"]
_LEVELS: Final[dict[int, Level]] = {_MEMBER: "member", _TRUSTED: "trusted", _ANCHOR: "anchor"}
_FAR: Final = 2**31


class Standing(msgspec.Struct):
    """A member while events are judged. `depth` is its distance from the founder by promotions."""

    entry: Entry
    rank: int
    added_at: str
    depth: int = _FAR


class OpenInvite(msgspec.Struct):
    """An invite while events are judged, with the place at which it was made and the inviter's rank then."""

    event: CommunityEvent
    content: Invited
    place: int
    rank: int
    open: bool = True


class Gone(msgspec.Struct, frozen=True):
    """A node that was revoked: where in the order, when by its revoker's clock, and why."""

    place: int
    revoked_at: str
    reason: str


class Folded(NamedTuple):
    """The outcome. `flaws` says of each event that does not count why."""

    name: str
    created_at: str
    policy: Policy
    members: dict[str, Standing]
    revoked: dict[str, Gone]
    invites: tuple[OpenInvite, ...]
    reached: int
    flaws: dict[str, str]


class Removal(NamedTuple):
    """A revocation or demotion that is allowed, and how near to the founder those are who signed it."""

    depths: tuple[int, ...]
    place: int
    event: CommunityEvent
    content: Demoted | Revoked


class _Flaw(Exception):
    """Why an event does not count."""


def fold(history: History) -> Folded:
    """The state that `history` comes to; `bad_request` where no event founds the community."""
    quick = _Pass(history, (), quick=True)
    quick.run()
    state = quick if quick.plain else _decided(history)
    if state.name is None:
        raise HearthNetError("bad_request", "is of no community: nothing founds it")
    return state.folded()


def fold_slowly(history: History) -> Folded:
    """As `fold`, without its short cut for the histories in which no removal reaches back."""
    return _decided(history).folded()


def _decided(history: History) -> _Pass:
    """The pass in which every allowed removal has been decided upon."""
    decided: list[Removal] = []
    while True:
        state = _Pass(history, decided)
        state.run()
        if not state.removals:
            return state
        decided.append(min(state.removals, key=lambda one: (one.depths, one.place)))


class _Pass:
    """One walk through the events. Removals take effect if `decided`, with `quick` all as they come."""

    def __init__(self, history: History, decided: Iterable[Removal], quick: bool = False) -> None:
        self._history = history
        self._root = history.community_id
        self._quick = quick
        self.plain = True
        self.name: str | None = None
        self._created_at = ""
        self._policy = Policy()
        self._founder = ""
        self._members: dict[str, Standing] = {}
        self._logins: dict[str, str] = {}
        self._invites: dict[str, OpenInvite] = {}
        self._open: Counter[str] = Counter()
        self._asked: dict[str, tuple[Joined, OpenInvite]] = {}
        self._revoked: dict[str, Gone] = {}
        self._reached = 0
        self._flaws: dict[str, str] = {}
        self.removals: list[Removal] = []
        self._decided = {removal.event.hash: removal for removal in decided}
        self._limits: dict[str, list[tuple[int, frozenset[str], int]]] = {}
        for removal in self._decided.values():
            self._limit(removal)
        self._policies = [
            (place, event.content)
            for place, event in enumerate(history.events)
            if isinstance(event.content, PolicyUpdated)
        ]
        self._known: dict[tuple[int, str], frozenset[str]] = {}
        self._judges: dict[type, Callable[[int, CommunityEvent, Any], None]] = {
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

    def run(self) -> None:
        """Judges all events in their order."""
        for place, event in enumerate(self._history.events):
            try:
                if event.lamport > self._reached + MAX_LEAP:
                    raise _Flaw("its lamport is far beyond the events before it")
                self._reached = event.lamport
                judge = self._judges.get(type(event.content))
                if judge is None:
                    raise _Flaw("it is of a kind unknown here")
                judge(place, event, event.content)
            except _Flaw as flaw:
                self._flaws[event.hash] = str(flaw)

    def folded(self) -> Folded:
        """The state after the last event."""
        return Folded(
            name=self.name or "",
            created_at=self._created_at,
            policy=self._policy,
            members=self._members,
            revoked=self._revoked,
            invites=tuple(invite for invite in self._invites.values() if invite.open),
            reached=self._reached,
            flaws=self._flaws,
        )

    # Levels

    def _rank(self, node: str) -> int:
        if node == self._root:
            return _ROOT_RANK
        standing = self._members.get(node)
        return 0 if standing is None else standing.rank

    def _author_rank(self, place: int, event: CommunityEvent) -> int:
        """The author's rank here, less what removals that did not know this event leave of it."""
        rank = self._rank(event.author)
        for until, known, limit in self._limits.get(event.author, ()):
            if place < until and event.hash not in known:
                rank = min(rank, limit)
        return rank

    def _limit(self, removal: Removal) -> None:
        content = removal.content
        rank = RANK[content.new_level] if isinstance(content, Demoted) else 0
        known = self._history.below(content.target_node_id, content.target_heads)
        self._limits.setdefault(content.target_node_id, []).append((removal.place, known, rank))

    def _policy_for(self, place: int, event: CommunityEvent) -> Policy:
        """The policy here, or a later one that did not know this event."""
        policy = self._policy
        for at, update in self._policies:
            if at > place and event.author != self._root:
                known = self._known_at(at, event.author, update)
                policy = policy if event.hash in known else update.policy
        return policy

    def _known_at(self, place: int, author: str, update: PolicyUpdated) -> frozenset[str]:
        known = self._known.get((place, author))
        if known is None:
            known = self._history.below(author, update.heads.get(author, ()))
            self._known[place, author] = known
        return known

    def _may_invite(self, place: int, event: CommunityEvent) -> int:
        """The author's rank; a flaw where it may not invite."""
        rank = self._author_rank(place, event)
        needed = _MEMBER if self._policy_for(place, event).default_member_can_invite else _TRUSTED
        if rank < needed:
            raise _Flaw(f"to invite takes level {_LEVELS[needed]}, which its author did not have")
        return rank

    # Kinds of events

    def _created(self, place: int, event: CommunityEvent, content: Created) -> None:
        if self.name is not None:
            raise _Flaw("the community is founded already")
        self.name, self._created_at, self._policy = content.name, event.wall_clock, content.policy
        self._founder = content.founder.node_id
        self._admit(content.founder, event.wall_clock, _ANCHOR, 0)

    def _admit(self, entry: Entry, added_at: str, rank: int, depth: int) -> None:
        self._members[entry.node_id] = Standing(entry, rank, added_at, depth)
        self._logins[entry.login] = entry.node_id
        self._revoked.pop(entry.node_id, None)

    def _invited(self, place: int, event: CommunityEvent, content: Invited) -> None:
        rank = self._may_invite(place, event)
        if self._rank(content.invite_key) or content.login in self._logins:
            raise _Flaw("its key is a member's")
        if self._open[event.author] >= MAX_OPEN_INVITES:
            raise _Flaw(f"its author had {MAX_OPEN_INVITES} open invites; withdraw some")
        self._open[event.author] += 1
        self._invites[event.hash] = OpenInvite(event, content, place, rank)

    def _close(self, invite: OpenInvite) -> None:
        self._open[invite.event.author] -= invite.open
        invite.open = False

    def _joined(self, place: int, event: CommunityEvent, content: Joined) -> None:
        invite = self._invites.get(content.invite_event_hash)
        if invite is None:
            raise _Flaw("there is no such invite")
        if invite.content.invitee_node_id not in ("", event.author):
            raise _Flaw("the invite is for another node")
        if from_rfc3339(event.wall_clock) > invite.content.expires_at + SKEW_MS:
            raise _Flaw("the invite had expired")
        self._asked[event.hash] = (content, invite)

    def _admitted(self, place: int, event: CommunityEvent, content: Admitted) -> None:
        self._may_invite(place, event)
        joined, invite = self._asked.get(content.joined_event_hash, (None, None))
        if joined is None or invite is None or joined.member.node_id != content.node_id:
            raise _Flaw("nobody asked to join by that event")
        entry = joined.member
        if self._rank(entry.node_id):
            raise _Flaw("that node is a member already")
        if self._logins.get(entry.login, entry.node_id) != entry.node_id:
            raise _Flaw("its login is another member's")
        gone = self._revoked.get(entry.node_id)
        if gone is not None and not (
            invite.content.invitee_node_id == entry.node_id
            and invite.rank >= _TRUSTED
            and invite.place > gone.place
        ):
            raise _Flaw("a revoked node comes back only by an invite of a trusted member that names it")
        self._close(invite)
        self._admit(entry, event.wall_clock, _MEMBER, _FAR)

    def _promoted(self, place: int, event: CommunityEvent, content: Promoted) -> None:
        rank, new = self._author_rank(place, event), RANK[content.new_level]
        if rank < max(new, _TRUSTED):
            raise _Flaw(f"to promote to {content.new_level} takes that level, which its author did not have")
        target = self._members.get(content.target_node_id)
        if target is None or target.rank >= new:
            raise _Flaw(f"the target is no member below {content.new_level}")
        target.depth = min(target.depth, self._depth(event.author) + 1)
        target.rank = new

    def _withdrawn(self, place: int, event: CommunityEvent, content: Withdrawn) -> None:
        invite = self._invites.get(content.invite_event_hash)
        if invite is None or not invite.open:
            raise _Flaw("there is no such open invite")
        rank = self._author_rank(place, event)
        if rank < (_MEMBER if event.author == invite.event.author else _TRUSTED):
            raise _Flaw("an invite is withdrawn by its inviter or by a trusted member")
        self._close(invite)

    def _updated(self, place: int, event: CommunityEvent, content: PolicyUpdated) -> None:
        self._policy = content.policy

    # Removals

    def _removed(self, place: int, event: CommunityEvent, content: Demoted | Revoked) -> None:
        decided = self._decided.get(event.hash)
        if decided is not None:
            self._remove(place, event, content)
            return
        try:
            removal = Removal(self._signers(place, event, content), place, event, content)
        except _Flaw:
            # It may be allowed, or be another one's rival, once removals are weighed one by one.
            self.plain = self.plain and not (self._revoked or self._limits)
            raise
        if not self._quick:
            self.removals.append(removal)
            return
        self._limit(removal)
        _, known, _ = self._limits[content.target_node_id][-1]
        earlier = self._history.events[:place]
        if any(one.author == content.target_node_id and one.hash not in known for one in earlier):
            self.plain = False
        self._remove(place, event, content)

    def _remove(self, place: int, event: CommunityEvent, content: Demoted | Revoked) -> None:
        standing = self._members.get(content.target_node_id)
        if isinstance(content, Demoted):
            if standing is not None:
                standing.rank = min(standing.rank, RANK[content.new_level])
                standing.depth = standing.depth if standing.rank >= _TRUSTED else _FAR
            return
        if standing is not None:
            del self._members[content.target_node_id]
            del self._logins[standing.entry.login]
        for invite in self._invites.values():
            if invite.event.author == content.target_node_id:
                self._close(invite)
        self._revoked[content.target_node_id] = Gone(place, event.wall_clock, content.reason)

    def _signers(self, place: int, event: CommunityEvent, content: Demoted | Revoked) -> tuple[int, ...]:
        """The depths of those who signed, nearest first, the absent farthest; a flaw where they are few."""
        target, author = content.target_node_id, event.author
        self._check_target(content)
        if author == self._root:
            return (-1,)
        if author == target:
            return (self._depth(author), _FAR)
        if target == self._founder:
            raise _Flaw("the founder is removed by the root or by itself alone")
        if self._author_rank(place, event) < _TRUSTED:
            raise _Flaw("to remove takes level trusted, which its author did not have")
        signers = {author} | {
            one.node_id for one in content.co_signers if self._rank(one.node_id) >= _TRUSTED
        }
        signers.discard(target)
        others = sum(one.rank >= _TRUSTED for node, one in self._members.items() if node != target)
        needed = community.needed(self._policy_for(place, event), event.event_type, others)
        if len(signers) < needed:
            raise _Flaw(f"it takes {needed} signatures of trusted members and has {len(signers)}")
        return (*sorted(map(self._depth, signers)), _FAR)

    def _check_target(self, content: Demoted | Revoked) -> None:
        target = content.target_node_id
        standing = self._members.get(target)
        if standing is None and (isinstance(content, Demoted) or target not in self._revoked):
            raise _Flaw("the target is no member")
        if isinstance(content, Demoted) and standing is not None:
            if standing.rank <= RANK[content.new_level]:
                raise _Flaw(f"the target is not above {content.new_level}")
            if standing.rank == _ANCHOR and sum(one.rank == _ANCHOR for one in self._members.values()) == 1:
                raise _Flaw("the last anchor stays one")

    def _depth(self, node: str) -> int:
        standing = self._members.get(node)
        return -1 if node == self._root else _FAR if standing is None else standing.depth
