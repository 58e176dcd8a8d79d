"""One walk through the events of a community, each judged by what those before it gave (trust/fold.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

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

_ROOT: Final = 99
_MEMBER, _TRUSTED, _ANCHOR = RANK["member"], RANK["trusted"], RANK["anchor"]
LEVELS: Final[dict[int, Level]] = {_MEMBER: "member", _TRUSTED: "trusted", _ANCHOR: "anchor"}
_FAR: Final = 2**31


class Standing(msgspec.Struct):
    """A member. `sponsor` promoted it to trusted or above, `depth` promotions away from the founder."""

    entry: Entry
    rank: int
    added_at: str
    sponsor: str = ""
    depth: int = _FAR


class OpenInvite(msgspec.Struct):
    """An invite: where in the order it was made, and the inviter's rank then."""

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


class Removal(NamedTuple):
    """A revocation or demotion that is allowed. Of two that exclude each other the lighter stands.

    `known` are the target's events that it leaves as they are; `relies_on` its signers and those whose
    promotions made them trusted, up to the founder.
    """

    place: int
    event: CommunityEvent
    content: Demoted | Revoked
    known: frozenset[str]
    weight: tuple[int, ...]
    relies_on: frozenset[str]


Agreement = tuple[str, str, str, str]
"""What kind of removal, of whom, to which level or why, under which client id."""


class _Flaw(Exception):
    """Why an event does not count."""


class Judge:
    """The state after all events of `history`, where of the removals only those in `decided` take effect."""

    def __init__(self, history: History, decided: Sequence[Removal]) -> None:
        self.name: str | None = None
        self.created_at = ""
        self.policy = Policy()
        self.members: dict[str, Standing] = {}
        self.revoked: dict[str, Gone] = {}
        self.invites: dict[str, OpenInvite] = {}
        self.reached = 0
        self.flaws: dict[str, str] = {}
        self.removals: list[Removal] = []
        self._history = history
        self._root = history.community_id
        self._founder = ""
        self._logins: dict[str, str] = {}
        self._open: Counter[str] = Counter()
        self._asked: dict[str, tuple[Joined, OpenInvite]] = {}
        self._decided = {removal.event.hash for removal in decided}
        self._carried_out = _carried_out(decided)
        self._limits = _limits(decided)
        self._covered: dict[tuple[int, str], frozenset[str]] = {}
        self._policies = [
            (place, event.content)
            for place, event in enumerate(history.events)
            if isinstance(event.content, PolicyUpdated)
        ]
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
        self._run()

    def _run(self) -> None:
        for place, event in enumerate(self._history.events):
            try:
                if event.lamport > self.reached + MAX_LEAP:
                    raise _Flaw("its lamport is far beyond the events before it")
                self.reached = event.lamport
                judge = self._judges.get(type(event.content))
                if judge is None:
                    raise _Flaw("it is of a kind unknown here")
                judge(place, event, event.content)
            except _Flaw as flaw:
                self.flaws[event.hash] = str(flaw)

    # What the author of an event may do

    def _rank(self, node: str) -> int:
        if node == self._root:
            return _ROOT
        standing = self.members.get(node)
        return 0 if standing is None else standing.rank

    def _author_rank(self, place: int, event: CommunityEvent) -> int:
        """The author's rank here, less what removals that did not know this event leave of it."""
        rank = self._rank(event.author)
        for until, known, limit in self._limits.get(event.author, ()):
            if place < until and event.hash not in known:
                rank = min(rank, limit)
        return rank

    def _policy_for(self, place: int, event: CommunityEvent) -> Policy:
        """The policy here, or a later one that did not know this event."""
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
        """The author's rank; a flaw where it may not invite."""
        rank = self._author_rank(place, event)
        everyone = rank == _ROOT or self._policy_for(place, event).default_member_can_invite
        needed = _MEMBER if everyone else _TRUSTED
        if rank < needed:
            raise _Flaw(f"to invite takes level {LEVELS[needed]}, which its author did not have")
        return rank

    # Coming in

    def _created(self, place: int, event: CommunityEvent, content: Created) -> None:
        if self.name is not None:
            raise _Flaw("the community is founded already")
        self.name, self.created_at, self.policy = content.name, event.wall_clock, content.policy
        self._founder = content.founder.node_id
        self._let_in(content.founder, event.wall_clock, _ANCHOR, 0)

    def _let_in(self, entry: Entry, added_at: str, rank: int, depth: int) -> None:
        self.members[entry.node_id] = Standing(entry, rank, added_at, depth=depth)
        self._logins[entry.login] = entry.node_id
        self.revoked.pop(entry.node_id, None)

    def _invited(self, place: int, event: CommunityEvent, content: Invited) -> None:
        rank = self._may_invite(place, event)
        if self._open[event.author] >= MAX_OPEN_INVITES:
            raise _Flaw(f"its author had {MAX_OPEN_INVITES} open invites; withdraw some")
        self._open[event.author] += 1
        self.invites[event.hash] = OpenInvite(event, content, place, rank)

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
        if self._rank(entry.node_id):
            raise _Flaw("that node is a member already")
        if entry.login in self._logins:
            raise _Flaw("its login is another member's")
        gone = self.revoked.get(entry.node_id)
        if gone is not None and not _recalls(invite, entry.node_id, gone):
            raise _Flaw("a revoked node comes back only by an invite of a trusted member that names it")
        self._close(invite)
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
        target.rank = max(target.rank, new)

    def _updated(self, place: int, event: CommunityEvent, content: PolicyUpdated) -> None:
        self.policy = content.policy

    def _removed(self, place: int, event: CommunityEvent, content: Demoted | Revoked) -> None:
        if event.hash in self._decided:
            if place > self._carried_out.get(_agreement(content), place):
                raise _Flaw("what its co-signers agreed to was carried out before; it takes new signatures")
            self._remove(place, event, content)
            return
        self._check_target(content)
        signers = self._signers(place, event, content)
        weight, relies_on = self._weigh(signers)
        known = _known(self._history, event, content)
        self.removals.append(Removal(place, event, content, known, weight, relies_on))

    def _remove(self, place: int, event: CommunityEvent, content: Demoted | Revoked) -> None:
        target = self.members.get(content.target_node_id)
        if isinstance(content, Demoted):
            if target is not None and target.rank > RANK[content.new_level]:
                self._keep_an_anchor(target)
                target.rank = RANK[content.new_level]
                target.depth = target.depth if target.rank >= _TRUSTED else _FAR
            return
        if target is not None:
            del self.members[content.target_node_id]
            del self._logins[target.entry.login]
        for invite in self.invites.values():
            if invite.event.author == content.target_node_id:
                self._close(invite)
        self.revoked[content.target_node_id] = Gone(place, event.wall_clock, content.reason)

    def _check_target(self, content: Demoted | Revoked) -> None:
        target = self.members.get(content.target_node_id)
        if isinstance(content, Revoked):
            if target is None and content.target_node_id not in self.revoked:
                raise _Flaw("the target is no member")
        elif target is None or target.rank <= RANK[content.new_level]:
            raise _Flaw(f"the target is no member above {content.new_level}")
        else:
            self._keep_an_anchor(target)

    def _keep_an_anchor(self, target: Standing) -> None:
        if target.rank == _ANCHOR and sum(one.rank == _ANCHOR for one in self.members.values()) == 1:
            raise _Flaw("the last anchor stays one")

    def _signers(self, place: int, event: CommunityEvent, content: Demoted | Revoked) -> set[str]:
        """Those whose signatures count, where they are enough; a flaw where not."""
        author, target = event.author, content.target_node_id
        rank = self._author_rank(place, event)
        if rank == _ROOT or (author == target and rank >= _MEMBER):
            return {author}
        if target == self._founder:
            raise _Flaw("the founder is removed by the root or by itself alone")
        if rank < _TRUSTED:
            raise _Flaw("to remove others takes level trusted, which its author did not have")
        agreeing = {one.node_id for one in content.co_signers if self._rank(one.node_id) >= _TRUSTED}
        signers = (agreeing | {author}) - {target}
        others = sum(one.rank >= _TRUSTED for node, one in self.members.items() if node != target)
        needed = community.needed(self._policy_for(place, event), event.event_type, others)
        if len(signers) < needed:
            raise _Flaw(f"it takes {needed} signatures of trusted members and has {len(signers)}")
        return signers

    def _weigh(self, signers: set[str]) -> tuple[tuple[int, ...], frozenset[str]]:
        """The lighter the more lines of promotion the signers come from, and the nearer they are to the
        founder; lightest with the root's signature. And on whom they rely.
        """
        lines = [self._line(signer) for signer in signers]
        if self._root in signers:
            return (-_FAR,), frozenset()
        heads = {line[-1] for line in lines}
        depths = sorted(map(self._depth, signers))
        return (-len(heads), *depths, _FAR), frozenset().union(*lines)

    def _line(self, node: str) -> list[str]:
        """`node`, its sponsor, that one's sponsor and so on, as far as one whom the founder or root chose."""
        line = [node]
        while (sponsor := self._sponsor(line[-1])) and sponsor not in line:
            line.append(sponsor)
        return line

    def _sponsor(self, node: str) -> str:
        standing = self.members.get(node)
        sponsor = "" if standing is None else standing.sponsor
        return "" if sponsor in (self._root, self._founder) else sponsor

    def _depth(self, node: str) -> int:
        standing = self.members.get(node)
        return -1 if node == self._root else _FAR if standing is None else standing.depth


def _recalls(invite: OpenInvite, node: str, gone: Gone) -> bool:
    return invite.content.invitee_node_id == node and invite.rank >= _TRUSTED and invite.place > gone.place


def _known(history: History, event: CommunityEvent, content: Demoted | Revoked) -> frozenset[str]:
    # Who leaves has done what it had done: else it could take back whom it let in.
    leaving = event.author == content.target_node_id
    return history.below(content.target_node_id, (event.previous,) if leaving else content.target_heads)


def _agreement(content: Demoted | Revoked) -> Agreement | None:
    """What the co-signers of a removal agreed to (resolutions.md 71), None where there are none."""
    if not content.co_signers:
        return None
    what = content.reason if isinstance(content, Revoked) else content.new_level
    return type(content).__name__, content.target_node_id, what, content.client_id


def _carried_out(decided: Iterable[Removal]) -> dict[Agreement | None, int]:
    """Where each agreement takes effect: once, however many events carry its signatures. Else any trusted
    member could repeat a removal alone, with what others signed long before the target came back.
    """
    found: dict[Agreement | None, int] = {}
    for removal in decided:
        agreement = _agreement(removal.content)
        if agreement is not None:
            found[agreement] = min(removal.place, found.get(agreement, removal.place))
    return found


def _limits(decided: Sequence[Removal]) -> dict[str, list[tuple[int, frozenset[str], int]]]:
    """For each target of a removal: up to where its events have no more than which rank behind them, other
    than those that the removal knew.
    """
    found: dict[str, list[tuple[int, frozenset[str], int]]] = {}
    first = _carried_out(decided)
    for removal in decided:
        content = removal.content
        rank = RANK[content.new_level] if isinstance(content, Demoted) else 0
        until = first.get(_agreement(content), removal.place)
        found.setdefault(content.target_node_id, []).append((until, removal.known, rank))
    return found
