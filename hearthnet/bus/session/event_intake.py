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
from hearthnet.core.times import steady_ms
from hearthnet.trust.community.events import Admitted, CommunityEvent, Joined
from hearthnet.trust.community.roster import Roster

BYTES_AT_ONCE: Final = 256 * 1024
BYTES_PER_SECOND: Final = 64 * 1024 / 86_400
"""Room for the events of a line of invitation: 64 KiB a day in the long run, some twenty admissions."""
UNKNOWN_BYTES: Final = 2 * 1024
"""Maximum size of an event of a kind that this version does not know."""
TRUSTED_FACTOR: Final = 16
"""Room for a trusted member's own events, and for those of others that it passes on, in lines."""
Lookup = Callable[[str], CommunityEvent | None]
"""Returns the event with a hash, None if it is not held."""
_ROUNDING: Final = 1e-6
Charge = tuple[LineBudgets, tuple[str, ...], float]
"""A budget, the line to charge, and the units."""


class EventIntake:
    """The room left for the authors of the roster that `roster` returns, at a process of `node`."""

    def __init__(self, node: str, roster: Callable[[], Roster]) -> None:
        self._node = node
        self._roster = roster
        self._bytes = LineBudgets(BYTES_AT_ONCE, BYTES_PER_SECOND)
        # A day's admissions are one unit, and come back within a day.
        self._admissions = LineBudgets(1.0 + _ROUNDING, 1 / 86_400)
        self._vouchers: dict[str, str] = {}
        self.passed_over = 0

    def is_fit(self, event: CommunityEvent) -> bool:
        """Return whether to look at `event` at all: well-formed, and small if its kind is unknown."""
        try:
            return event.content is not None or len(event.encode()) <= UNKNOWN_BYTES
        except HearthNetError:
            return False

    def take(self, event: CommunityEvent, source: str, lookup: Lookup) -> bool:
        """Charge a valid `event` that `source` passed on, and return whether there was room for it.

        `lookup` returns the event with a hash, None if it is not held.
        """
        now, charges = steady_ms(), self._charges(event, source, lookup, steady_ms())
        if charges is None:
            self.passed_over += 1
            return False
        for budget, line, units in charges:
            budget.spend(line, units, now)
        return True

    def has_room(self, event: CommunityEvent, source: str, lookup: Lookup) -> bool:
        """Return whether `take` would find room now, without charging it."""
        return self._charges(event, source, lookup, steady_ms()) is not None

    def _charges(
        self, event: CommunityEvent, source: str, lookup: Lookup, now_ms: int
    ) -> list[Charge] | None:
        """Return what to charge for `event`; None if neither its author nor `source` has room for it."""
        roster = self._roster()
        free = (self._node, roster.community_id, roster.folded.founder)
        if event.author in free or source in free:
            return []
        payers = [self._payer(event, lookup)]
        if source and roster.stands_alone(source):
            payers.append(((f"passed on by {source}",), TRUSTED_FACTOR))
        for line, factor in payers:
            charges: list[Charge] = [(self._bytes, line, len(event.encode()) / factor)]
            if isinstance(event.content, Admitted) and factor == 1:
                charges.append((self._admissions, line[-1:], 1 / roster.policy.daily_admissions))
            if all(budget.left(one, now_ms) >= units for budget, one, units in charges):
                return charges
        return None

    def _payer(self, event: CommunityEvent, lookup: Lookup) -> tuple[tuple[str, ...], int]:
        """Return the line that answers for `event`, and by how much more than a plain one it may write."""
        roster, author = self._roster(), event.author
        voucher = self._voucher_of(event, lookup)
        if voucher != author:
            self._vouchers[author] = voucher
            newcomers = f"{voucher}'s newcomers"
            above = () if roster.stands_alone(voucher) else roster.line(voucher)
            return (newcomers, *above), 1
        return roster.line(author), TRUSTED_FACTOR if roster.stands_alone(author) else 1

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
