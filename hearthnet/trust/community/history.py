"""The events of a community that a node holds, with all events that they build on.

A grow-only set of one chain per author: merging is union, so the order of arrival has no effect and nothing
is ever taken back (docs/decisions/0040). It does not decide which events count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Final

from hearthnet.core.errors import HearthNetError
from hearthnet.trust.community import event_validation, events
from hearthnet.trust.community.events import (
    Admitted,
    CommunityEvent,
    Created,
    Demoted,
    Invited,
    Joined,
    PolicyUpdated,
    Revoked,
    Withdrawn,
)
from hearthnet.trust.community.person_statements import DeviceRemoved
from hearthnet.trust.eventlog.chain_ends import MAX_ENDS, Heads, read_head

MAX_LEAP: Final = 1_000_000
"""Maximum step of the community's lamport by one event; otherwise a single event could use up all numbers."""


class History:
    """The events, in their order. Immutable; `extended` returns the larger one."""

    def __init__(self, community_id: str, events: Iterable[CommunityEvent] = ()) -> None:
        self.community_id: Final = community_id
        self.events: Final = tuple(sorted(events, key=attrgetter("order")))
        self._by_hash: Final = {event.hash: event for event in self.events}

    def get(self, hash_: str) -> CommunityEvent | None:
        """Return the event with this hash."""
        return self._by_hash.get(hash_)

    def has_place(self, event: CommunityEvent) -> bool:
        """Return whether all that `event` builds on is held, including what admits its author."""
        return _has_its_place(event, self._by_hash, self.community_id, self.founders)

    @cached_property
    def founders(self) -> frozenset[str]:
        """The nodes that events which found the community name; more than one only if the root forks."""
        return frozenset(map(_founder, self.events)) - {""}

    @cached_property
    def tips(self) -> dict[str, list[CommunityEvent]]:
        """The events of each author that none of its others follows, the longest chain last."""
        followed = {event.previous for event in self.events}
        ends = (event for hash_, event in self._by_hash.items() if hash_ not in followed)
        found: dict[str, list[CommunityEvent]] = {}
        for event in sorted(ends, key=lambda one: (one.sequence, one.hash)):
            found.setdefault(event.author, []).append(event)
        return found

    @cached_property
    def leaps(self) -> frozenset[str]:
        """The events whose lamport is too far beyond those before them to count."""
        found, reached = set(), 0
        for event in self.events:
            if event.lamport > reached + MAX_LEAP:
                found.add(event.hash)
            else:
                reached = event.lamport
        return frozenset(found)

    def below(self, author: str, heads: Iterable[str]) -> frozenset[str]:
        """Return the hashes of the events of `author` up to and including `heads`."""
        found: set[str] = set()
        for head in heads:
            event = self.get(head)
            while event is not None and event.author == author and event.hash not in found:
                found.add(event.hash)
                event = self.get(event.previous)
        return frozenset(found)

    def heads(self) -> Heads:
        """Return the ends of all chains, in the form in which others request missing events.

        At most `MAX_ENDS` per author; more ends are written in one place on purpose.
        """
        return {
            author: sorted(f"{tip.sequence}:{tip.hash}" for tip in tips[-MAX_ENDS:])
            for author, tips in sorted(self.tips.items())
        }

    def lacks(self, heads: Mapping[str, Sequence[str]]) -> bool:
        """Return whether `heads` name an event that is not held here.

        Raises:
            HearthNetError: `bad_request` if `heads` are malformed.
        """
        return any(
            hash_ not in self._by_hash for texts in heads.values() for _, hash_ in map(read_head, texts)
        )

    def missing(self, heads: Mapping[str, Sequence[str]]) -> tuple[CommunityEvent, ...]:
        """Return the events that a node with `heads` may lack, in their order.

        An author whose chain is longer there, with ends unknown here, is left out: after its events are
        fetched from that node, the next comparison shows whether it lacks any held here.

        Raises:
            HearthNetError: `bad_request` if `heads` are malformed.
        """
        have: set[str] = set()
        ahead: set[str] = set()
        for author, texts in heads.items():
            ends = [read_head(text) for text in texts]
            longest = max((tip.sequence for tip in self.tips.get(author, ())), default=0)
            known = [hash_ for _, hash_ in ends if hash_ in self._by_hash]
            have |= self.below(author, known)
            if not known and any(sequence > longest for sequence, _ in ends):
                ahead.add(author)
        return tuple(one for one in self.events if one.hash not in have and one.author not in ahead)

    def next(self, author: str, reached: int) -> tuple[int, str, int]:
        """Return sequence, previous and lamport of the next event of `author`.

        `reached` is the community's lamport.
        """
        tips = self.tips.get(author)
        if not tips:
            return 1, "", reached + 1
        last = tips[-1]
        return last.sequence + 1, last.hash, max(reached, last.lamport) + 1

    def extended(
        self, events: Iterable[CommunityEvent], admits: Callable[[CommunityEvent], bool] | None = None
    ) -> tuple[History, tuple[CommunityEvent, ...]]:
        """Return the history with the valid ones of `events`, and those that wait for others.

        Events that are held already cost no check of a signature; invalid ones are left out, as are valid
        ones for which `admits` returns False: it is called in the order, just before an event is added.
        """
        held, founders = dict(self._by_hash), set(self.founders)
        waiting = []
        # An event comes after those that it builds on in the order, so one walk finds all that can be added.
        for event in sorted(_hashable(events), key=attrgetter("order")):
            if event.hash in held:
                continue
            if not _has_its_place(event, held, self.community_id, founders):
                waiting.append(event)
            elif _holds(event, held, self.community_id) and (admits is None or admits(event)):
                held[event.hash] = event
                founders.add(_founder(event))
        if len(held) == len(self._by_hash):
            return self, tuple(waiting)
        return History(self.community_id, held.values()), tuple(waiting)


def _hashable(events: Iterable[CommunityEvent]) -> Iterable[CommunityEvent]:
    """Yield the events that have a canonical form."""
    for event in events:
        try:
            event.hash  # noqa: B018 - computed here, where the error can be dealt with
        except HearthNetError:
            continue
        yield event


def _builds_on(event: CommunityEvent) -> set[str]:
    """Return the hashes of the events that must be held, and sorted, before `event`."""
    found = {event.previous} if event.previous else set()
    match event.content:
        case Joined(invite_event_hash=hash_) | Withdrawn(invite_event_hash=hash_):
            found.add(hash_)
        case Admitted(joined_event_hash=hash_):
            found.add(hash_)
        case Demoted(target_heads=heads) | Revoked(target_heads=heads) | DeviceRemoved(target_heads=heads):
            found.update(heads)
        case PolicyUpdated(heads=known):
            found.update(*known.values())
        case _:
            pass
    return found


def _has_its_place(
    event: CommunityEvent,
    held: Mapping[str, CommunityEvent],
    community_id: str,
    founders: Collection[str],
) -> bool:
    """Return whether all that `event` builds on is held, including what admits its author.

    `founders` are those that `held` names. Any member can send events of strangers: nothing is searched.
    """
    try:
        if not all(hash_ in held for hash_ in _builds_on(event)):
            return False
    except HearthNetError:
        return True  # left out at once instead of waited for
    if event.previous or event.author == community_id or isinstance(event.content, Joined):
        return True
    return event.author in founders


def _founder(event: CommunityEvent) -> str:
    if event.event_type != events.CREATED or not isinstance(event.content, Created):
        return ""
    return event.content.founder.node_id


def _holds(event: CommunityEvent, held: Mapping[str, CommunityEvent], community_id: str) -> bool:
    """Return whether `event`, whose predecessors are held, fits them and is correctly signed."""
    before = held.get(event.previous)
    if before is not None and (before.author, before.sequence + 1) != (event.author, event.sequence):
        return False
    try:
        if any(held[hash_].lamport >= event.lamport for hash_ in _builds_on(event)):
            return False
        content = event.content
        if isinstance(content, Joined) and not _is_invite(held[content.invite_event_hash], content):
            return False
        event_validation.validate_event(event, community_id)
    except HearthNetError:
        return False
    return True


def _is_invite(event: CommunityEvent, joined: Joined) -> bool:
    return isinstance(event.content, Invited) and event.content.invite_key == joined.invite_key
