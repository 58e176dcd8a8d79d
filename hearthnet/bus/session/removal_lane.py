"""The lane of removals, which are merged before all other events: its entries, and their cost.

A removal that removes no member costs a replay of all events, and no rest follows. Members that can remove
others are trusted not to do that. A person needs no trust to remove its own nodes, so what its removals cost
in vain is charged; a sender that has spent its part waits in turn.

See: docs/protocol/community.md#place, docs/decisions/0198.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from hearthnet.core.errors import HearthNetError
from hearthnet.core.rate_limits import LineBudgets, TokenBucket
from hearthnet.core.times import steady_ms
from hearthnet.trust.community import pending_removals
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.event_validation import validate_event
from hearthnet.trust.community.events import CommunityEvent
from hearthnet.trust.community.history import History
from hearthnet.trust.community.person_statements import DeviceRemoved
from hearthnet.trust.community.removals import removal_target
from hearthnet.trust.community.roster import RANK, Roster

SECONDS_AT_ONCE: Final = 2.0
SECONDS_PER_SECOND: Final = 0.1
"""Processor time for the removals by persons that remove no member, as much as other merges take."""
MAX_AT_ONCE: Final = 8
"""Maximum of removals by persons that one node has in the lane before the next merge."""
_MOST_EARLY: Final = 64
"""Maximum of removals that would count and whose place is not there yet."""


class RemovalLane:
    """The removals to be merged next by a process of `node`, and those that wait for their place.

    `roster` returns the roster in use.
    """

    def __init__(self, node: str, roster: Callable[[], Roster]) -> None:
        self._node = node
        self._roster = roster
        self.queued: dict[str, CommunityEvent] = {}
        self.early: dict[str, CommunityEvent] = {}
        """Those that act before their place is there."""
        self._payers: dict[str, str] = {}
        """The node that pays for each queued removal by a person."""
        self._keys = LineBudgets(SECONDS_AT_ONCE, SECONDS_PER_SECOND)
        self._recoveries = TokenBucket(SECONDS_AT_ONCE, SECONDS_PER_SECOND)
        """By person: a thief of the person key cannot spend what its recovery key needs."""

    def takes(self, event: CommunityEvent, history: History, source: str) -> bool:
        """Put an unknown removal that `source` sent into the lane, and return whether it is there.

        Only that of a node that may remove others, of a person, or of one that leaves, once its place is
        there; all others wait in turn.
        """
        target, roster = removal_target(event), self._roster()
        if event.hash in self.early or event.hash in self.queued:
            return True
        if not target or history.get(event.hash) is not None:
            return False
        if event.author == target:
            if roster.member(target) is None or not (event.previous and history.has_place(event)):
                return False
        elif not roster.stands_alone(event.author):
            payer = event.author if source == self._node else source
            if not self._is_paid(event, roster, payer):
                return False
            self._payers[event.hash] = payer
        self.queued[event.hash] = event
        return True

    def take_queued(self) -> dict[str, CommunityEvent]:
        """Return the queued removals, which are queued no more."""
        queued, self.queued = self.queued, {}
        return queued

    def charge(self, queued: Collection[CommunityEvent], valid: Collection[str], seconds: float) -> None:
        """Charge the merge of `queued` to the senders of removals by persons that remove no member.

        `valid` are the hashes of those whose signatures are right. A forged one costs little; its sender has
        a budget for frames.
        """
        roster, now = self._roster(), steady_ms()
        payers = {one.hash: self._payers.pop(one.hash) for one in queued if one.hash in self._payers}
        vain = [
            one for one in queued if one.hash in payers and roster.member(removal_target(one)) is not None
        ]
        for one in vain:
            share, person = seconds / len(vain), _recovered(one)
            if not person:
                self._keys.spend(roster.line(payers[one.hash]), share, now)
            elif one.hash in valid:
                self._recoveries.spend(person, share, now)

    def _is_paid(self, event: CommunityEvent, roster: Roster, payer: str) -> bool:
        """Return whether the person of a member's node removes it, by `event`, and has not done so in vain.

        It names a key that may: a sender without one cannot have such events replayed without a rest.
        """
        content = event.content
        if not isinstance(content, DeviceRemoved) or roster.member(content.device) is None:
            return False
        person = roster.person(roster.person_of(content.device))
        if person is None or content.key not in (person.person, person.key):
            return False
        if Counter(self._payers.values())[payer] >= MAX_AT_ONCE:
            return False
        if _recovered(event):
            return self._recoveries.left(person.person, steady_ms()) > 0
        return self._keys.left(roster.line(payer), steady_ms()) > 0


def _recovered(event: CommunityEvent) -> str:
    """Return the person whose recovery key, as `event` says, removes a node; empty if none does."""
    match event.content:
        case DeviceRemoved(person=person, key=key) if key == person:
            return person
        case _:
            return ""


def derive(
    proven: Roster,
    shown: Roster,
    history: History,
    removals: Sequence[CommunityEvent],
    known: Mapping[str, CommunityEvent],
) -> tuple[Roster, Roster, list[CommunityEvent], list[CommunityEvent]]:
    """Return the roster of `history`, the same without those revoked by `removals`, and the valid of these.

    First those that act before their place is there, then the others. `proven` and `shown` are the rosters
    until now; those of `known` are valid.
    """
    valid = [one for one in removals if one.hash in known or _is_valid(one, proven.community_id)]
    after = proven if history is proven.history else rosters.derived(history)
    # What is derived at first use is derived here, and not in the event loop.
    after.history.tips, after.folded  # noqa: B018
    anticipated, counting = pending_removals.without_revoked(after, valid)
    urgent = _first_of_each(counting, after)
    if len(urgent) < len(counting):
        anticipated, _ = pending_removals.without_revoked(after, urgent)
    if after is proven and anticipated.members == shown.members:
        anticipated = shown
    return after, anticipated, urgent, [one for one in valid if one not in urgent]


def _first_of_each(removals: Sequence[CommunityEvent], roster: Roster) -> list[CommunityEvent]:
    """Return one of each author, target and kind, those of the root and of higher levels first."""
    found: dict[tuple[str, str, str], CommunityEvent] = {}
    for one in removals:
        found.setdefault((one.author, removal_target(one), one.event_type), one)
    by_level = sorted(
        found.values(),
        key=lambda one: (one.author != roster.community_id, -RANK[roster.level(one.author)]),
    )
    return by_level[:_MOST_EARLY]


def _is_valid(event: CommunityEvent, community_id: str) -> bool:
    try:
        validate_event(event, community_id)
    except HearthNetError:
        return False
    return True
