"""The judgement of a community's events, each by the state before it (trust/community/reducer.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from hearthnet.core.times import from_rfc3339
from hearthnet.trust.community import recovery_statements
from hearthnet.trust.community.doors import Door, DoorClosed, DoorOpened, OpenDoors
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
from hearthnet.trust.community.history import MAX_LEAP as MAX_LEAP
from hearthnet.trust.community.history import History
from hearthnet.trust.community.member_state import (
    FAR,
    MemberState,
    OpenInvite,
    RevokedMember,
    depth_of,
    weigh,
)
from hearthnet.trust.community.person_statements import DeviceAdded, DeviceRemoved, PersonKeyed
from hearthnet.trust.community.persons import Persons, PersonStatements
from hearthnet.trust.community.quorum import min_rank, required_signatures
from hearthnet.trust.community.removals import (
    Removal,
    agreement_of,
    executed,
    is_own,
    known_of,
    rank_limits,
    removal_of,
)

MAX_OPEN_INVITES: Final = 100
"""Maximum of unused invites per member: each is a login in the configuration of every server."""
MAX_REMOVALS: Final = 8
"""Maximum of removals of one node by its person that have an effect, those first in the order."""
SKEW_MS: Final = 60_000

_ROOT: Final = 99
_MEMBER, _TRUSTED, _ANCHOR = RANK["member"], RANK["trusted"], RANK["anchor"]
LEVELS: Final[dict[int, Level]] = {_MEMBER: "member", _TRUSTED: "trusted", _ANCHOR: "anchor"}


class _Flaw(Exception):
    """The reason for which an event does not count."""


class RosterReplay:
    """The state after all events of `history` if only the removals in `decided` take effect.

    `reached` is the highest lamport; `flaws` has the reason for each event that does not count; `inviters`
    has who made the last invite of each node that was ever admitted, `free` the nodes that a trusted one
    invited last.
    """

    def __init__(
        self, history: History, decided: Sequence[Removal], statements: PersonStatements | None = None
    ) -> None:
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
        self.statements = statements or PersonStatements(history)
        self._root = history.community_id
        self.founder = ""
        self.inviters: dict[str, str] = {}
        self.free: set[str] = set()
        self.doors = OpenDoors()
        self._logins: dict[str, str] = {}
        self._open: Counter[str] = Counter()
        self._named: dict[tuple[str, str], OpenInvite] = {}
        self._asked: dict[str, tuple[Joined, OpenInvite]] = {}
        self._decided = {removal.event.hash for removal in decided}
        self._carried_out = executed(decided)
        self._limits = rank_limits(decided)
        self._limits_by_others = rank_limits([one for one in decided if not is_own(one.event)])
        self._covered: dict[tuple[int, str], frozenset[str]] = {}
        self._removals_by: dict[tuple[str, str], set[tuple[str, ...]]] = {}
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
            DoorOpened: self._door_opened,
            DoorClosed: self._door_closed,
            **dict.fromkeys((PersonKeyed, *recovery_statements.CONTENTS.values()), self._about_person_key),
            DeviceAdded: self._device_added,
            DeviceRemoved: self._device_removed,
        }
        for place, event in enumerate(self._history.events):
            try:
                if event.hash in self._history.leaps:
                    raise _Flaw("its lamport is far beyond the events before it")
                self.reached = event.lamport
                judge = judges.get(type(event.content))
                if judge is None:
                    raise _Flaw("it is of a kind unknown here")
                judge(place, event, event.content)
            except _Flaw as flaw:
                self.flaws[event.hash] = str(flaw)
        nodes = {self.founder, *self.inviters}
        self.persons = Persons(self.statements, nodes, self.revoked.keys(), self.flaws)
        self.flaws.update(self.persons.flaws)

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
        if revoked is not None and not invite.recalls_revocation(entry.node_id, revoked):
            raise _Flaw("a revoked node comes back only by an invite of a trusted member that names it")
        self._close(invite)
        self.inviters[entry.node_id] = invite.event.author
        (self.free.add if invite.by_trusted else self.free.discard)(entry.node_id)
        self._let_in(entry, event.wall_clock, _MEMBER, FAR)

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
        depth = depth_of(event.author, self.members, self._root) + 1
        if depth < target.depth:
            target.sponsor, target.depth = event.author, depth
        self._set_rank(target, max(target.rank, new))

    def _updated(self, place: int, event: CommunityEvent, content: PolicyUpdated) -> None:
        self.policy = content.policy

    def _removed(self, place: int, event: CommunityEvent, content: Demoted | Revoked) -> None:
        if event.hash in self._decided:
            if place > self._carried_out.get(agreement_of(event), place):
                raise _Flaw("what its signers agreed to was carried out before; it takes new signatures")
            self._remove(place, event, content)
            return
        self._check_target(content)
        by_person = isinstance(event.content, DeviceRemoved)
        signers = {content.target_node_id} if by_person else self._signers(place, event, content)
        weight, relies_on = weigh(signers, self.members, self._root, self.founder)
        known = known_of(self._history, event, content)
        self.removals.append(Removal(place, event, content, known, weight, relies_on))

    def _remove(self, place: int, event: CommunityEvent, content: Demoted | Revoked) -> None:
        target = self.members.get(content.target_node_id)
        if isinstance(content, Demoted):
            if target is not None and target.rank > RANK[content.new_level]:
                self._keep_an_anchor(target)
                self._set_rank(target, RANK[content.new_level])
                if target.rank < _TRUSTED:
                    target.depth = FAR
                    self.doors.drop(content.target_node_id)
            return
        self.doors.drop(content.target_node_id)
        if target is not None:
            del self.members[content.target_node_id]
            self._having[target.rank] -= 1
            del self._logins[target.entry.login]
        for invite in self.invites.values():
            invite.signers.discard(content.target_node_id)
            if invite.event.author == content.target_node_id:
                self._close(invite)
        before = self.revoked.get(content.target_node_id)
        by_itself = is_own(event) and (before is None or before.by_itself)
        self.revoked[content.target_node_id] = RevokedMember(
            place, event.hash, event.wall_clock, content.reason, by_itself
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

    # Doors

    def _door_opened(self, place: int, event: CommunityEvent, content: DoorOpened) -> None:
        rank = self._author_rank(place, event)
        door = Door(event.author, content.address, content.route, content.key, event.wall_clock)
        if flaw := self.doors.open(door, is_trusted=_TRUSTED <= rank < _ROOT):
            raise _Flaw(flaw)

    def _door_closed(self, place: int, event: CommunityEvent, content: DoorClosed) -> None:
        wanted = _MEMBER if event.author == content.node_id else _TRUSTED
        may_close = self._author_rank(place, event) >= wanted
        if flaw := self.doors.close(content.node_id, may_close=may_close):
            raise _Flaw(flaw)

    # Persons

    def _about_person_key(self, place: int, event: CommunityEvent, content: Any) -> None:
        if reason := self.statements.flaw(content):
            raise _Flaw(reason)

    def _device_added(self, place: int, event: CommunityEvent, content: DeviceAdded) -> None:
        """Judge the standing of a node that has added itself.

        What it, or its person, removes does not decide: its thief could take back that it was the person's.
        """
        if content.kind != "node":
            return
        revoked = self.revoked.get(event.author)
        if event.author not in self.members and (revoked is None or not revoked.by_itself):
            raise _Flaw("the node is no member")
        for until, known, limit in self._limits_by_others.get(event.author, ()):
            if place < until and event.hash not in known and not limit:
                raise _Flaw("the node is no member")

    def _device_removed(self, place: int, event: CommunityEvent, content: DeviceRemoved) -> None:
        if reason := self.statements.removal_flaw(content):
            raise _Flaw(reason)
        removal, is_node = removal_of(event), content.device in self.members or content.device in self.revoked
        if removal and is_node and self.statements.has_added_itself(content.device, content.person):
            self._count_removal(content)
            self._removed(place, event, removal)

    def _count_removal(self, content: DeviceRemoved) -> None:
        """Bound the removals of one node, each of which is weighed and keeps the events that it knew.

        A repetition names the same ends. It takes no place, so that a repetition by others displaces nothing.
        """
        known = self._removals_by.setdefault((content.person, content.device), set())
        if content.target_heads in known:
            raise _Flaw("what the person signed was carried out before")
        if len(known) >= MAX_REMOVALS:
            raise _Flaw(f"the person removed that device {MAX_REMOVALS} times before")
        known.add(content.target_heads)
