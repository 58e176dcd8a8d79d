"""Reservations of what posts offer, and their states. Pure.

    asked      the reservation was made
    promised   the author of the post has promised it to this reservation
    lent       the author has handed it over
    returning  the borrower says that it was given back
    returned   the author has it back
    refused    the author has refused the reservation
    withdrawn  the borrower has withdrawn it

Each step is an event of the person concerned, and the state follows from the set of steps that are known: it
is that of the last one of `_ORDER`, in any order of arrival and without clocks. Only the author promises, so
that homes which do not hear of each other never promise one thing twice. Two devices of the author can: then
no promise counts beside a loan, and of several promises the one to the reservation with the
lowest id counts.

What a home asks of one post counts up to `MOST_OF_HOME`, and of one of its persons once, the lowest ids
first: a home that writes reservations without end takes nothing from others.

See: docs/market.md#lending.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple

from hearthnet.core import rfc3339

State = Literal["asked", "promised", "lent", "returning", "returned", "refused", "withdrawn"]
_ORDER: Final[tuple[tuple[str, State], ...]] = (
    ("take_back", "returned"),
    ("give_back", "returning"),
    ("hand_over", "lent"),
    ("refuse", "refused"),
    ("withdraw", "withdrawn"),
    ("promise", "promised"),
)
OUT: Final = frozenset[State]({"lent", "returning"})
_OPEN: Final = OUT | {"asked", "promised"}
MOST_OF_HOME: Final = 4
"""Reservations of one post that persons of one home have at once before the author decides."""


class Loan(NamedTuple):
    """A reservation: its id, its author, the note, the time in ms, and its state."""

    event_id: str
    by: str
    note: str
    at: int
    state: State

    @property
    def home(self) -> str:
        """The node of its author."""
        return self.by.partition("/")[0]

    @property
    def is_open(self) -> bool:
        """Whether it can still go on."""
        return self.state in _OPEN

    def shown(self) -> dict[str, Any]:
        """Return it in the form in which posts have it."""
        by, _, guest = self.by.partition("/")
        return {
            "event_id": self.event_id,
            "by": by,
            **({"guest": guest} if guest else {}),
            "state": self.state,
            **({"note": self.note} if self.note else {}),
            "at": rfc3339(self.at),
        }


def loans_of(rows: Iterable[tuple[str, str, str, int, Collection[str]]]) -> tuple[Loan, ...]:
    """Return the reservations of a post, oldest id first; rows have id, author, note, time and steps."""
    loans = list(_counted(Loan(*row[:4], _state(row[4])) for row in sorted(rows)))
    is_out = any(one.state in OUT for one in loans)
    promised = [one.event_id for one in loans if one.state == "promised"]
    counts = set() if is_out else set(promised[:1])
    return tuple(
        one._replace(state="asked") if one.state == "promised" and one.event_id not in counts else one
        for one in loans
    )


def _counted(loans: Iterable[Loan]) -> Iterator[Loan]:
    """Yield reservations without those that are asked beyond the part of a home or person."""
    asked = Counter[str]()
    for one in loans:
        if one.state == "asked":
            if asked[one.home] >= MOST_OF_HOME or asked[f"{one.by}/"]:
                continue
            asked.update((one.home, f"{one.by}/"))
        yield one


def _state(steps: Collection[str]) -> State:
    if "give_back" in steps and "hand_over" not in steps and "take_back" not in steps:
        steps = {*steps} - {"give_back"}  # nobody gives back before the author says that it was handed over
    return next((state for step, state in _ORDER if step in steps), "asked")
