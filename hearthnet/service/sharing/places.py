"""The places of one offer: the calls that hold one, and the line of those that wait for one.

    this home      has the first place that comes free
    other homes    the one with the least recent use is next; of equals the one whose call waits longest

Recent use is the time in which calls of a home held places, running ones included; it halves each minute. So
a home has no larger share for more calls at once, and one that comes rarely is served at once. A home has a
part of the line, too: where that is full, the newest call of the home with most of them makes room.

Pure: a home is a text, "" for this one; times are seconds of a monotonic clock.

See: docs/protocol/admission.md#waiting-for-a-place, docs/decisions/0228-fair-places.md.
"""

from __future__ import annotations

import math
from typing import Final, Generic, TypeVar

from hearthnet.core.errors import Overloaded
from hearthnet.protocol.offer import places_of_other

HALF_LIFE_SECONDS: Final = 60.0
MAX_WAITING: Final = 64
"""Maximum of waiting calls of all other homes together, and of the own home."""
MAX_WAITING_OF_HOME: Final = 8
LINE_FULL: Final = "line_full"
_LINE_FULL_MS: Final = 1_000
_MOST_HOMES: Final = 1_024
"""Homes whose use is remembered; beyond it those with the least are forgotten."""
_NO_USE_SECONDS: Final = 0.001

Waiter = TypeVar("Waiter")


class _Home(Generic[Waiter]):
    """The use of one home, and its waiting calls in the order of their arrival, with a number of each."""

    __slots__ = ("_at", "_began", "_used", "held", "waiting")

    def __init__(self) -> None:
        self.held = 0
        self.waiting: dict[Waiter, int] = {}
        self._began = 0.0
        """The sum of the times at which the running calls began."""
        self._used = self._at = 0.0

    def begin(self, now: float) -> None:
        self.held += 1
        self._began += now

    def end(self, began: float, now: float) -> None:
        self._used = self._decayed(now) + max(0.0, now - began)
        self._at = now
        self.held -= 1
        self._began = self._began - began if self.held else 0.0

    def use(self, now: float) -> float:
        """Return the recent use in seconds."""
        return self._decayed(now) + self.held * now - self._began

    def _decayed(self, now: float) -> float:
        return self._used * math.exp2((self._at - now) / HALF_LIFE_SECONDS)


class Places(Generic[Waiter]):
    """The places of one offer, `count` of them; another home holds half at most, and at least one."""

    def __init__(self, count: int) -> None:
        self.in_flight = 0
        self._count = count
        self._count_of_other = places_of_other(count)
        self._homes: dict[str, _Home[Waiter]] = {}
        self._arrivals = self._waiting = 0

    def is_free(self, home: str) -> bool:
        """Return whether a call of `home` can begin now. None that waits could: it would have begun."""
        if self.in_flight >= self._count:
            return False
        known = self._homes.get(home) if home else None
        return known is None or known.held < self._count_of_other

    def take(self, home: str, now: float) -> None:
        """Record that a call of `home` begins."""
        self.in_flight += 1
        if home:
            self._known(home, now).begin(now)

    def release(self, home: str, began: float, now: float) -> None:
        """Record that a call of `home`, which took its place at `began`, has ended."""
        self.in_flight -= 1
        if home:
            self._homes[home].end(began, now)

    def wait(self, waiter: Waiter, home: str, now: float) -> Waiter | None:
        """Add a call to the line; return the one that there is no room for, if any, maybe itself."""
        mine = self._known(home, now).waiting
        if len(mine) >= (MAX_WAITING_OF_HOME if home else MAX_WAITING):
            return waiter
        crowded_out = None
        others = [each.waiting for name, each in self._homes.items() if name and each.waiting]
        if home and sum(map(len, others)) >= MAX_WAITING:
            largest = max(others, key=len)
            if len(largest) <= len(mine) + 1:
                return waiter
            crowded_out = next(reversed(largest))
            del largest[crowded_out]
            self._waiting -= 1
        self._arrivals += 1
        self._waiting += 1
        mine[waiter] = self._arrivals
        return crowded_out

    def leave(self, waiter: Waiter, home: str) -> None:
        """Remove a call from the line, if it is there."""
        known = self._homes.get(home)
        if known is not None and known.waiting.pop(waiter, None) is not None:
            self._waiting -= 1

    def next(self, now: float) -> Waiter | None:
        """Remove and return the waiting call that a free place is for; None if there is none.

        The caller takes the place for it before the next question.
        """
        if not self._waiting or self.in_flight >= self._count:
            return None
        own = self._homes.get("")
        if own is not None and own.waiting:
            return self._first_of(own)
        homes = [
            each
            for name, each in self._homes.items()
            if name and each.waiting and each.held < self._count_of_other
        ]
        if not homes:
            return None
        return self._first_of(min(homes, key=lambda each: (each.use(now), next(iter(each.waiting.values())))))

    def held(self, home: str) -> int:
        """Return the number of places that calls of another home hold."""
        known = self._homes.get(home)
        return 0 if known is None else known.held

    def _first_of(self, home: _Home[Waiter]) -> Waiter:
        first = next(iter(home.waiting))
        del home.waiting[first]
        self._waiting -= 1
        return first

    def _known(self, home: str, now: float) -> _Home[Waiter]:
        known = self._homes.get(home)
        if known is None:
            if len(self._homes) >= _MOST_HOMES:
                self._forget(now)
            known = self._homes[home] = _Home()
        return known

    def _forget(self, now: float) -> None:
        """Forget the homes without calls here: those without use, else the half with the least."""
        idle = [
            (each.use(now), name) for name, each in self._homes.items() if not each.held + len(each.waiting)
        ]
        unused = [name for use, name in idle if use < _NO_USE_SECONDS]
        for name in unused or [name for _, name in sorted(idle)[: len(idle) // 2 + 1]]:
            del self._homes[name]


def line_full() -> Overloaded:
    """Return the refusal of a call that there is no room for in the line."""
    return Overloaded(
        "all places are taken, and too many calls wait for one; try again in a moment",
        rule=LINE_FULL,
        retry_after_ms=_LINE_FULL_MS,
    )
