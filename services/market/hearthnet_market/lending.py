"""The steps of borrower and lender: their inputs, and their rules. Pure.

See: docs/market.md#lending.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, Literal

import msgspec

from hearthnet import HearthNetError
from hearthnet_market.loan_states import MOST_OF_HOME, OUT, Loan, State
from hearthnet_market.schemas import PostState, answers_for, no_post

RESERVED: Final = "market.reservation.made"
BORROWER: Final = "market.reservation.changed"
LENDER: Final = "market.loan.changed"
MOST_OPEN: Final = 50
"""Open reservations of one post, as far as its home knows."""
_FROM: Final[dict[str, frozenset[State]]] = {
    "withdraw": frozenset({"asked", "promised"}),
    "give_back": frozenset({"lent"}),
    "promise": frozenset({"asked"}),
    "hand_over": frozenset({"asked", "promised"}),
    "take_back": frozenset({"lent", "returning"}),
    "refuse": frozenset({"asked", "promised"}),
}
"""The states in which a step is taken."""


class ReserveInput(msgspec.Struct, frozen=True):
    """Input of `market.reserve`: a step of the borrower with the post `event_id`.

    Without `reservation`, the caller's own open one is meant.
    """

    client_id: str
    event_id: str
    step: Literal["ask", "withdraw", "give_back"] = "ask"
    reservation: str = ""
    note: str = ""


class LendInput(msgspec.Struct, frozen=True):
    """Input of `market.lend`: a step of the author of the post `event_id` with a reservation of `borrower`.

    Without `borrower`, the one reservation of this id is meant.
    """

    client_id: str
    event_id: str
    reservation: str
    step: Literal["promise", "hand_over", "take_back", "refuse"]
    borrower: str = ""


def reservation_of(wanted: ReserveInput, post: PostState, mine: Collection[str]) -> dict[str, Any]:
    """Return the data of the event by which a caller with principals `mine` takes a step of a borrower.

    Raises:
        HearthNetError: `not_found` without such a post or reservation; `unauthorized` for the author of the
            post, and for a reservation of another member; `bad_request` if the step does not fit the state.
    """
    data = {"client_id": wanted.client_id, "target_event_id": wanted.event_id, "step": wanted.step}
    if wanted.step == "ask":
        _check_ask(wanted, post, mine)
        return {**data, **({"note": wanted.note} if wanted.note else {})}
    own = [one for one in post.loans if one.is_open and one.by in mine]
    named = [one for one in post.loans if one.event_id == wanted.reservation] if wanted.reservation else own
    if not named:
        raise _no_reservation(wanted.event_id)
    loan = next((one for one in named if answers_for(mine, one.by)), None)
    if loan is None:
        raise HearthNetError("unauthorized", "only its borrower may do that; see: market.lend")
    _check_step(wanted.step, loan)
    return {**data, "reservation": loan.event_id, "borrower": loan.by}


def _check_ask(wanted: ReserveInput, post: PostState, mine: Collection[str]) -> None:
    if not post.current or post.hidings:
        raise no_post(wanted.event_id)
    if post.author in mine:
        raise HearthNetError("unauthorized", "cannot reserve what oneself offers; see: market.lend")
    path = {"path": "/input/event_id"}
    if post.category != "offer":
        raise HearthNetError(
            "bad_request", "only an offer can be reserved", details={**path, "rule": "category"}
        )
    still = [one for one in post.loans if one.is_open]
    if any(one.by in mine for one in still):
        raise HearthNetError(
            "bad_request", "it is reserved for the caller already", details={**path, "rule": "already"}
        )
    homes = {one.partition("/")[0] for one in mine}
    if sum(one.home in homes for one in still) >= MOST_OF_HOME:
        raise HearthNetError(
            "capacity_exceeded",
            f"persons of one home have at most {MOST_OF_HOME} open reservations of a post; withdraw one",
        )
    if len(still) >= MOST_OPEN:
        raise HearthNetError("capacity_exceeded", f"a post has at most {MOST_OPEN} open reservations")


def lending_of(wanted: LendInput, post: PostState, mine: Collection[str]) -> dict[str, Any]:
    """Return the data of the event by which a caller with principals `mine` decides as author.

    Raises:
        HearthNetError: `unauthorized` if the caller is not the author of the post; `not_found` without such a
            reservation; `bad_request` if the step does not fit the state, another one has the thing, or two
            members gave their reservations this id.
    """
    if post.author not in mine:
        raise HearthNetError("unauthorized", "only its author lends what a post offers; see: market.reserve")
    named = [one for one in post.loans if one.event_id == wanted.reservation]
    # A home can give one id to reservations of its own and of a guest: the whole name is nobody else's.
    exact = [one for one in named if one.by == wanted.borrower]
    named = exact or [one for one in named if wanted.borrower in ("", one.home)]
    if not named:
        raise _no_reservation(wanted.event_id)
    if len(named) > 1:
        raise HearthNetError(
            "bad_request",
            f"{len(named)} reservations have this id; name the borrower of one",
            details={"path": "/input/borrower", "rule": "ambiguous"},
            alt=[one.by for one in named],
        )
    loan = named[0]
    _check_step(wanted.step, loan)
    if wanted.step in ("promise", "hand_over"):
        busy = [one for one in post.loans if one.state in {*OUT, "promised"} and one is not loan]
        if busy:
            raise HearthNetError(
                "bad_request",
                f"it is {busy[0].state} to {busy[0].event_id}; take it back or refuse that reservation first",
                details={"path": "/input/reservation", "rule": "promised"},
            )
    return {
        "client_id": wanted.client_id,
        "target_event_id": wanted.event_id,
        "reservation": loan.event_id,
        "borrower": loan.by,
        "step": wanted.step,
    }


def concerns(post: PostState, mine: Collection[str]) -> bool:
    """Return whether a caller with principals `mine` is its author, or has an open reservation of it."""
    return post.author in mine or any(one.is_open and one.by in mine for one in post.loans)


def _check_step(step: str, loan: Loan) -> None:
    if loan.state not in _FROM[step]:
        raise HearthNetError(
            "bad_request",
            f"reservation {loan.event_id} is {loan.state}; cannot {step.replace('_', ' ')} it",
            details={"path": "/input/step", "rule": "state"},
        )


def _no_reservation(event_id: str) -> HearthNetError:
    return HearthNetError("not_found", f"post {event_id} has no such reservation; see: market.list")
