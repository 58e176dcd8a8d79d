"""All events of a community that a node holds, each author's chained, and none without what it builds on.

A grow-only set: merging is union, so no order of arrival matters and nothing is ever taken back
(docs/decisions/0040). Which of the events count is not decided here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final

from hearthnet.errors import HearthNetError
from hearthnet.trust import community, holds
from hearthnet.trust.community import (
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

Heads = dict[str, list[str]]
"""For each author the ends of its chain, as `<sequence>:<hash>`: one, or several where it wrote two events in
one place.
"""

MAX_ENDS: Final = 64
_HEAD: Final = re.compile("([1-9][0-9]{0,15}):(blake3:[0-9a-f]{64})")


class History:
    """The events, in their order. Immutable; `extended` gives the larger one."""

    def __init__(self, community_id: str, events: Iterable[CommunityEvent] = ()) -> None:
        self.community_id: Final = community_id
        self.events: Final = tuple(sorted(events, key=_order))
        self._by_hash: Final = {event.hash: event for event in self.events}

    def get(self, hash_: str) -> CommunityEvent | None:
        """The event with this hash."""
        return self._by_hash.get(hash_)

    @cached_property
    def tips(self) -> dict[str, list[CommunityEvent]]:
        """For each author the events that none of its others follows, the longest chain last."""
        followed = {event.previous for event in self.events}
        found: dict[str, list[CommunityEvent]] = {}
        for event in sorted(self.events, key=lambda one: (one.sequence, one.hash)):
            if event.hash not in followed:
                found.setdefault(event.author, []).append(event)
        return found

    def below(self, author: str, heads: Iterable[str]) -> frozenset[str]:
        """The hashes of `author`'s events that `heads` end: they and all before them."""
        found: set[str] = set()
        for head in heads:
            event = self.get(head)
            while event is not None and event.author == author and event.hash not in found:
                found.add(event.hash)
                event = self.get(event.previous)
        return frozenset(found)

    def heads(self) -> Heads:
        """What is held, in the form in which others ask for what they lack.

        Of an author with more than `MAX_ENDS` ends, who writes events in one place on purpose, only so many.
        """
        return {
            author: sorted(f"{tip.sequence}:{tip.hash}" for tip in tips[-MAX_ENDS:])
            for author, tips in sorted(self.tips.items())
        }

    def lacks(self, heads: Mapping[str, Sequence[str]]) -> bool:
        """Whether `heads` end in an event that is not held here; `bad_request` where they are malformed."""
        return any(hash_ not in self._by_hash for given in heads.values() for _, hash_ in map(_head, given))

    def missing(self, heads: Mapping[str, Sequence[str]]) -> tuple[CommunityEvent, ...]:
        """The events that one who has `heads` may lack, in their order.

        Where its chain of an author is longer than ours and ends in events unknown here, it is taken to be
        ahead: once we have fetched its events we see whether it lacks any of ours. `bad_request` where
        `heads` are malformed.
        """
        have: set[str] = set()
        ahead: set[str] = set()
        for author, given in heads.items():
            ends = [_head(text) for text in given]
            longest = max((tip.sequence for tip in self.tips.get(author, ())), default=0)
            known = [hash_ for _, hash_ in ends if hash_ in self._by_hash]
            have |= self.below(author, known)
            if not known and any(sequence > longest for sequence, _ in ends):
                ahead.add(author)
        return tuple(one for one in self.events if one.hash not in have and one.author not in ahead)

    def next(self, author: str, reached: int) -> tuple[int, str, int]:
        """Sequence, previous and lamport of `author`'s next event; `reached` is the community's lamport."""
        tips = self.tips.get(author)
        if not tips:
            return 1, "", reached + 1
        last = tips[-1]
        return last.sequence + 1, last.hash, max(reached, last.lamport) + 1

    def extended(self, events: Iterable[CommunityEvent]) -> tuple[History, tuple[CommunityEvent, ...]]:
        """The history with all of `events` that hold and have their place, and those that wait for others.

        What is held already costs no check of a signature; what does not hold is left out.
        """
        held = dict(self._by_hash)
        waiting = []
        # What an event builds on comes before it in the order, so one walk finds all that have their place.
        for event in sorted(_hashable(events), key=_order):
            if event.hash in held:
                continue
            if not _has_its_place(event, held, self.community_id):
                waiting.append(event)
            elif _holds(event, held, self.community_id):
                held[event.hash] = event
        if len(held) == len(self._by_hash):
            return self, tuple(waiting)
        return History(self.community_id, held.values()), tuple(waiting)


def _order(event: CommunityEvent) -> tuple[int, str, str]:
    return event.order


def _head(text: str) -> tuple[int, str]:
    found = _HEAD.fullmatch(text)
    if found is None:
        raise HearthNetError(
            "bad_request", f"{text[:80]!r} is not a head (sequence, colon, hash of an event)"
        )
    return int(found[1]), found[2]


def _hashable(events: Iterable[CommunityEvent]) -> Iterable[CommunityEvent]:
    """Those that have a canonical form at all."""
    for event in events:
        try:
            event.hash  # noqa: B018 - computed here, where the error can be dealt with
        except HearthNetError:
            continue
        yield event


def _builds_on(event: CommunityEvent) -> set[str]:
    """The hashes of the events that must be held before `event`, and that come before it in the order."""
    found = {event.previous} if event.previous else set()
    match event.content:
        case Joined(invite_event_hash=hash_) | Withdrawn(invite_event_hash=hash_):
            found.add(hash_)
        case Admitted(joined_event_hash=hash_):
            found.add(hash_)
        case Demoted(target_heads=heads) | Revoked(target_heads=heads):
            found.update(heads)
        case PolicyUpdated(heads=known):
            found.update(*known.values())
        case _:
            pass
    return found


def _has_its_place(event: CommunityEvent, held: Mapping[str, CommunityEvent], community_id: str) -> bool:
    """Whether all that `event` builds on is held, and whatever lets its author begin."""
    try:
        if not all(hash_ in held for hash_ in _builds_on(event)):
            return False
    except HearthNetError:
        return True  # to be left out at once, rather than waited for
    if event.previous or event.author == community_id or isinstance(event.content, Joined):
        return True
    return any(_founder(one) == event.author for one in held.values())


def _founder(event: CommunityEvent) -> str:
    if event.event_type != community.CREATED or not isinstance(event.content, Created):
        return ""
    return event.content.founder.node_id


def _holds(event: CommunityEvent, held: Mapping[str, CommunityEvent], community_id: str) -> bool:
    """Whether `event`, whose place is there, fits it and is signed by those who should have."""
    before = held.get(event.previous)
    if before is not None and (before.author, before.sequence + 1) != (event.author, event.sequence):
        return False
    try:
        if any(held[hash_].lamport >= event.lamport for hash_ in _builds_on(event)):
            return False
        content = event.content
        if isinstance(content, Joined) and not _is_invite(held[content.invite_event_hash], content):
            return False
        holds.check(event, community_id)
    except HearthNetError:
        return False
    return True


def _is_invite(event: CommunityEvent, joined: Joined) -> bool:
    return isinstance(event.content, Invited) and event.content.invite_key == joined.invite_key
