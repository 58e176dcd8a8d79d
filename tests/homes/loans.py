"""The reservations of a campaign as its persons left them, and acts of lending that fit what a home lists."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

_STATES: Final = {
    "ask": "asked",
    "promise": "promised",
    "withdraw": "withdrawn",
    "refuse": "refused",
    "hand_over": "lent",
    "give_back": "returning",
    "take_back": "returned",
}
"""The state after each step; the last one that was taken counts (docs/market.md#lending)."""
_ENDS: Final = frozenset({"refuse", "take_back"})
_LENDERS: Final = {
    "asked": ("promise", "promise", "hand_over", "refuse"),
    "promised": ("hand_over", "refuse"),
    "lent": ("take_back",),
    "returning": ("take_back",),
}
_BORROWERS: Final = {"asked": ("withdraw",), "promised": ("withdraw",), "lent": ("give_back",)}
_HAVE: Final = frozenset({"promised", "lent", "returning"})
_OPEN: Final = _LENDERS.keys()
Step = tuple[str, dict[str, Any]]
"""A capability, and its input without the client id."""
_MOST_ASKED: Final = 2
"""Posts among which a home draws the one that it reserves, so that several homes reserve the same ones."""


class Loans:
    """The steps with the reservations of each post."""

    def __init__(self) -> None:
        self._steps: dict[str, dict[str, set[str]]] = {}
        self._withdrawn: set[str] = set()

    def begin(self, verb: str, given: Mapping[str, Any]) -> None:
        """Record that a step is about to be taken."""
        if verb == "reserve" and given["step"] == "withdraw":
            self._withdrawn.add(given["reservation"])

    def taken(self, verb: str, given: Mapping[str, Any], event_id: str) -> str:
        """Record a step that a home has confirmed; return the fault if it promises a thing a second time.

        An author who knows that a reservation was withdrawn may promise the thing to another one.
        """
        post, step = self._steps.setdefault(given["event_id"], {}), given["step"]
        reservation = event_id if step == "ask" else given["reservation"]
        post.setdefault(reservation, set()).add(step)
        if step in ("promise", "hand_over"):
            for other, steps in post.items():
                if other != reservation and self._has_it(other, steps):
                    return f"{given['event_id']} was promised to {reservation} beside {other}"
        return ""

    def states(self, post: str) -> dict[str, str]:
        """Return the states of the post's reservations by their ids."""
        return {key: _state(steps) for key, steps in self._steps.get(post, {}).items()}

    @property
    def contested(self) -> int:
        """The number of posts that were reserved more than once."""
        return sum(len(post) > 1 for post in self._steps.values())

    def _has_it(self, reservation: str, steps: set[str]) -> bool:
        if steps & _ENDS:
            return False
        return "hand_over" in steps or ("promise" in steps and reservation not in self._withdrawn)


def draw_step(page: Mapping[str, Mapping[str, Any]], own: str, draw: random.Random) -> Step | None:
    """Return a step that the home `own` may want to take with what it lists, `page`.

    To promise once more what is promised is drawn often, for it must be refused.
    """
    asked, again, others = list[Step](), list[Step](), list[Step]()
    for key, post in sorted(page.items()):
        loans = post.get("loans", ())
        is_mine = post["author"] == own
        has_one = any(loan["state"] in _HAVE for loan in loans)
        for loan in loans:
            steps = _LENDERS if is_mine else _BORROWERS if loan["by"] == own else {}
            given = {"event_id": key, "reservation": loan["event_id"]}
            verb = "lend" if is_mine else "reserve"
            found = [(verb, {**given, "step": step}) for step in steps.get(loan["state"], ())]
            if is_mine and has_one and loan["state"] == "asked":
                again += found
            else:
                others += found
        if not is_mine and not any(one["by"] == own and one["state"] in _OPEN for one in loans):
            asked.append(("reserve", {"event_id": key, "step": "ask"}))
    kinds = [kind for kind in (asked[:_MOST_ASKED], again, others) if kind]
    return draw.choice(draw.choice(kinds)) if kinds else None


def shown_states(post: Mapping[str, Any]) -> dict[str, str]:
    """Return the states of the reservations that a listed post has, by their ids."""
    return {one["event_id"]: one["state"] for one in post.get("loans", ())}


def _state(steps: set[str]) -> str:
    return next(state for step, state in reversed(_STATES.items()) if step in steps)
