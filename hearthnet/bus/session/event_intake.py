"""Room for the events of others, which every node keeps for good: who answers for them, and how much fits.

What does not fit is passed over and counted. It comes again by heads and fits later, so that nodes with the
same events agree, and nodes with different ones differ by what one line of invitation wrote last, at most.

See: docs/protocol/community.md#budgets, docs/decisions/0198.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from hearthnet.core.errors import HearthNetError
from hearthnet.core.rate_limits import LineBudgets
from hearthnet.core.times import from_rfc3339, now_ms, steady_ms
from hearthnet.trust.community.events import Admitted, CommunityEvent, Joined
from hearthnet.trust.community.roster import RANK, Roster

BYTES_AT_ONCE: Final = 256 * 1024
BYTES_PER_SECOND: Final = 64 * 1024 / 86_400
"""Room for the events of a line of invitation: 64 KiB a day in the long run, some twenty admissions."""
UNKNOWN_BYTES: Final = 2 * 1024
"""Maximum size of an event of a kind that this version does not know."""
TRUSTED_FACTOR: Final = 16
"""Room for a trusted member's own events, and for those of others that it passes on, in lines."""
Lookup = Callable[[str], CommunityEvent | None]
"""Returns the event with a hash, None if it is not held."""
_AHEAD_MS: Final = 86_400_000


class EventIntake:
    """The room left for the authors of the roster that `roster` returns, at a process of `node`."""

    def __init__(self, node: str, roster: Callable[[], Roster]) -> None:
        self._node = node
        self._roster = roster
        self._bytes = LineBudgets(BYTES_AT_ONCE, BYTES_PER_SECOND)
        self._vouchers: dict[str, str] = {}
        self.passed_over = 0

    def line(self, node: str) -> tuple[str, ...]:
        """Return `node` and those who answer for what it does, the last one for all of them.

        They are its inviter, that one's inviter and so on, up to the plain member whom a trusted one invited.
        """
        found = [node]
        inviters = self._roster().folded.inviters
        while not self.stands_alone(found[-1]):
            inviter = inviters.get(found[-1], "")
            if not inviter or inviter in found or self.stands_alone(inviter):
                break
            found.append(inviter)
        return tuple(found)

    def stands_alone(self, node: str) -> bool:
        """Return whether nobody answers for `node`: it is the root, or trusted."""
        roster = self._roster()
        return node == roster.community_id or RANK[roster.level(node)] >= RANK["trusted"]

    def is_fit(self, event: CommunityEvent) -> bool:
        """Return whether to look at `event` at all: a small one if its kind is unknown, and not of tomorrow.

        An admission that is dated ahead would count for a day that is not there yet.
        """
        try:
            if event.content is None:
                return len(event.encode()) <= UNKNOWN_BYTES
            ahead = (
                isinstance(event.content, Admitted) and from_rfc3339(event.wall_clock) > now_ms() + _AHEAD_MS
            )
        except HearthNetError:
            return False
        return not ahead or self.stands_alone(event.author)

    def take(self, event: CommunityEvent, source: str, lookup: Lookup) -> bool:
        """Charge a valid `event` that `source` passed on, and return whether there was room for it."""
        if self._is_free(event, source):
            return True
        size, now = len(event.encode()), steady_ms()
        for line, units in self._accounts(event, source, size, lookup):
            if self._bytes.take(line, units, now):
                return True
        self.passed_over += 1
        return False

    def has_room(self, event: CommunityEvent, source: str, lookup: Lookup) -> bool:
        """Return whether `take` would find room now, without charging it."""
        if self._is_free(event, source):
            return True
        size, now = len(event.encode()), steady_ms()
        accounts = self._accounts(event, source, size, lookup)
        return any(self._bytes.left(line, now) >= units for line, units in accounts)

    def _is_free(self, event: CommunityEvent, source: str) -> bool:
        roster = self._roster()
        free = (self._node, roster.community_id, roster.folded.founder)
        return event.author in free or source in (self._node, roster.folded.founder)

    def _accounts(
        self,
        event: CommunityEvent,
        source: str,
        size: int,
        lookup: Lookup,
    ) -> list[tuple[tuple[str, ...], float]]:
        """Return the lines of which one must have room, each with the units that it takes there."""
        author = event.author
        voucher = self._voucher_of(event, lookup)
        if voucher != author:
            self._vouchers[author] = voucher
            newcomers = f"{voucher}'s newcomers"
            line = (newcomers,) if self.stands_alone(voucher) else (newcomers, *self.line(voucher))
            found = [(line, float(size))]
        elif self.stands_alone(author):
            found = [((author,), size / TRUSTED_FACTOR)]
        else:
            found = [(self.line(author), float(size))]
        if source and self.stands_alone(source):
            found.append(((f"passed on by {source}",), size / TRUSTED_FACTOR))
        return found

    def _voucher_of(self, event: CommunityEvent, lookup: Lookup) -> str:
        """Return the node that answers for `event`.

        It is its author or, if that never was a member, the author of the invite under which it requests to
        join. Keys are free, so a stranger has no room of its own.
        """
        asked: set[str] = set()
        while not self._is_known(event.author) and event.author not in asked:
            asked.add(event.author)
            known = self._vouchers.get(event.author)
            if known is not None:
                return known
            invite = _invite_of(event, lookup)
            if invite is None:
                break
            event = invite
        return event.author

    def _is_known(self, node: str) -> bool:
        """Return whether `node` is the root, or is or was a member."""
        roster = self._roster()
        return node == roster.community_id or roster.member(node) is not None or roster.is_revoked(node)


def _invite_of(event: CommunityEvent, lookup: Lookup) -> CommunityEvent | None:
    """Return the invite of the join request of the author of `event`, None if unknown here."""
    found: CommunityEvent | None = event
    with contextlib.suppress(HearthNetError):  # malformed: left out by the merge
        while found is not None:
            if isinstance(found.content, Joined):
                return lookup(found.content.invite_event_hash)
            found = lookup(found.previous)
    return None
