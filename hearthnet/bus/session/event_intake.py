"""Room for the events of others, which every node keeps for good: who answers for them, and how much fits.

What does not fit is passed over and counted. It comes again by heads and fits later, so that nodes with the
same events agree, and nodes with different ones differ by what one line of invitation wrote last, at most.

See: docs/protocol/community.md#budgets, docs/decisions/0198.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Final

from hearthnet.core.canonical_json import is_plain
from hearthnet.core.errors import HearthNetError
from hearthnet.core.rate_limits import LineBudgets
from hearthnet.core.times import steady_ms
from hearthnet.trust.community.events import Admitted, CommunityEvent, Joined
from hearthnet.trust.community.person_statements import DeviceRemoved, PersonKeyed
from hearthnet.trust.community.recovery_statements import HelpersNamed
from hearthnet.trust.community.roster import Roster

BYTES_AT_ONCE: Final = 256 * 1024
BYTES_PER_SECOND: Final = 64 * 1024 / 86_400
"""Room for the events of a line of invitation: 64 KiB a day in the long run, some twenty admissions."""
RECOVERY_BYTES: Final = 96 * 1024
RECOVERY_BYTES_PER_SECOND: Final = 24 * 1024 / 86_400
"""Further room for what the recovery key of a member's person signs: a thief of one of the person's nodes
can fill that of its line.

The persons of nodes whom one member let in share it, and have half: a member could let in any number.
"""
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
        self._recoveries = LineBudgets(RECOVERY_BYTES, RECOVERY_BYTES_PER_SECOND)
        self._vouchers: dict[str, str] = {}
        self._admitted: set[str] = set()
        self.passed_over = 0

    def is_fit(self, event: CommunityEvent) -> bool:
        """Return whether to look at `event` at all: well-formed, and small and plain if its kind is unknown.

        Known kinds are closed and have neither fractions nor names beyond ASCII, other than by the root.
        """
        try:
            return event.content is not None or (
                is_plain(event.data) and len(event.encode()) <= UNKNOWN_BYTES
            )
        except HearthNetError:
            return False

    def take(self, event: CommunityEvent, sources: Sequence[str], lookup: Lookup) -> bool:
        """Charge `event`, whose place is there, and return whether there was room for it.

        It is valid. `sources` passed it on, or need it. `lookup` returns the event with a hash, of those that
        are proved and held; None if there is none.
        """
        now, charges = steady_ms(), self._charges(event, sources, lookup, steady_ms())
        if charges is None:
            self.passed_over += 1
            return False
        if not self._is_known(event.author):
            self._vouchers[event.author] = self._voucher_of(event, lookup)
        for budget, line, units in charges:
            budget.spend(line, units, now)
        if isinstance(event.content, Admitted):
            self._admitted.add(event.content.node_id)
        return True

    def has_room(self, event: CommunityEvent, source: str) -> bool:
        """Return whether `take` would find room now for an `event` that nobody has verified yet.

        What says who answers for a stranger may be forged unless it is held, so else the source does.
        """
        return self._charges(event, (source,), self._roster().history.get, steady_ms()) is not None

    def _charges(
        self, event: CommunityEvent, sources: Sequence[str], lookup: Lookup, now_ms: int
    ) -> list[Charge] | None:
        """Return what to charge for `event`; None if neither its author nor one of `sources` has room."""
        roster, size = self._roster(), len(event.encode())
        free = (self._node, roster.community_id, roster.folded.founder)
        if event.author in free or any(source in free for source in sources):
            return []
        line, factor = self._payer(event, sources[0], lookup)
        payers: list[list[Charge]] = [[(self._bytes, line, size / factor), *self._admission(event, lookup)]]
        trusted = (source for source in sources if source and roster.stands_alone(source))
        payers += [[(self._bytes, (f"passed on by {one}",), size / TRUSTED_FACTOR)] for one in trusted]
        payers += [[(self._recoveries, persons, size)] for persons in _recovered(event, roster)]
        for charges in payers:
            if all(budget.left(one, now_ms) >= units for budget, one, units in charges):
                return charges
        return None

    def _admission(self, event: CommunityEvent, lookup: Lookup) -> list[Charge]:
        """Return what to charge for letting in who is no member yet: the line of who made the invite.

        Whoever else admits under it has half. Nothing else: a member may repeat what is so already.
        """
        content, roster = event.content, self._roster()
        if not isinstance(content, Admitted) or content.node_id in self._admitted:
            return []
        request = lookup(content.joined_event_hash)
        if request is None or request.author != content.node_id or roster.member(request.author) is not None:
            return []
        invite = _invite_of(request, lookup)
        if invite is None or roster.stands_alone(invite.author):
            return []
        line, _ = self._payer(invite, invite.author, lookup)
        if event.author != invite.author:
            line = (f"{invite.author}'s invites elsewhere", *line)
        daily = roster.policy.daily_admissions
        return [(self._admissions, line if daily > 1 else line[-1:], 1 / daily)]

    def _payer(self, event: CommunityEvent, source: str, lookup: Lookup) -> tuple[tuple[str, ...], int]:
        """Return the line that answers for `event`, and by how much more than a plain one it may write."""
        roster, author = self._roster(), event.author
        voucher = self._voucher_of(event, lookup)
        if voucher not in ("", author):
            newcomers = f"{voucher}'s newcomers"
            above = () if roster.stands_alone(voucher) else roster.line(voucher)
            return (newcomers, *above), 1
        payer = author if voucher else source
        return roster.line(payer), TRUSTED_FACTOR if roster.stands_alone(payer) else 1

    def _voucher_of(self, event: CommunityEvent, lookup: Lookup) -> str:
        """Return the node that answers for `event`, empty if it is not known here.

        It is its author or, if that never was a member, the author of the invite under which it requests to
        join. Keys are free, so a stranger has no room of its own.
        """
        found = self._found_voucher(event, lookup)
        before = self._roster().history.get(event.previous)
        if (
            found
            and before is not None
            and before.author == event.author
            and not self._is_known(event.author)
        ):
            # What is held is proved. Else each event of a long chain would walk all of it in the event loop.
            self._vouchers[event.author] = found
        return found

    def _found_voucher(self, event: CommunityEvent, lookup: Lookup) -> str:
        asked: set[str] = set()
        while not self._is_known(event.author):
            known = self._vouchers.get(event.author)
            if known:
                return known
            invite = None if event.author in asked else _invite_of(event, lookup)
            if invite is None:
                return ""
            asked.add(event.author)
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
            before = lookup(found.previous)
            found = before if before is not None and before.author == event.author else None
    return None


def _recovered(event: CommunityEvent, roster: Roster) -> list[tuple[str, ...]]:
    """Return the person whose recovery key signed a statement in `event`, and who answers for that one.

    Nobody for a person who has no member's node: persons are free. Of several nodes the one with the fewest
    above it counts, since a thief of that one lets in the others.
    """
    match event.content:
        case PersonKeyed(person=person) | HelpersNamed(person=person):
            pass
        case DeviceRemoved(person=person, key=key) if key == person:
            pass
        case _:
            return []
    nodes = (one.key for one in roster.devices(person) if roster.member(one.key) is not None)
    lines = [roster.line(node)[1:] for node in nodes]
    return [(person, *(f"{one}'s persons" for one in min(lines, key=len)))] if lines else []
