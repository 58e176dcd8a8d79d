"""Rows of the view, in the form in which `market.list` and `market.export` return them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from hearthnet.core import rfc3339
from hearthnet_market.loan_states import MOST_OF_HOME, Loan, loans_of

COLUMNS: Final = (
    "event_id, lamport, author, category, title, body, location, tags, created_at, expires_at, updated_at, "
    "id, hidden_lamport, reserved"
)
ENDED: Final = "event_id, ended_lamport, ended_reason, ended_by, ended_note, ended_at, author"
HIDINGS: Final = """
    SELECT event_id, author, reason, at FROM standing_hiding WHERE post = ? ORDER BY at, event_id"""


LOANS: Final = """
    SELECT event_id, author, note, at, (
      SELECT json_group_array(step) FROM loan_step WHERE loan_step.post = reservation.post
      AND loan_step.reservation = reservation.event_id AND loan_step.borrower = reservation.author)
    FROM reservation WHERE post = ?"""
_MOST_LOANS: Final = 50
"""Reservations that a post is shown with."""


def post_of(row: tuple[Any, ...]) -> dict[str, Any]:
    """Return the post of a row of `COLUMNS`."""
    event_id, lamport, principal, category, title, body, location, tags, created, expires, updated = row[:11]
    author, _, guest = principal.partition("/")
    return {
        "event_id": event_id,
        "lamport": lamport,
        "author": author,
        **({"guest": guest} if guest else {}),
        "category": category,
        "title": title,
        "body": body,
        "location": None if location is None else msgspec.json.decode(location),
        "tags": msgspec.json.decode(tags),
        "created_at": rfc3339(created),
        **({} if updated is None else {"updated_at": rfc3339(updated)}),
        "expires_at": rfc3339(expires),
    }


def loans_in(rows: Iterable[tuple[Any, ...]]) -> tuple[Loan, ...]:
    """Return the reservations of a post, of rows of `LOANS`."""
    return loans_of((*row[:4], msgspec.json.decode(row[4])) for row in rows)


def shown_loans(loans: Iterable[Loan]) -> list[dict[str, Any]]:
    """Return reservations as posts have them: open ones first, each part oldest first.

    Up to `MOST_OF_HOME` of each home, and those that the author has decided about before others.
    """
    shown, homes = list[Loan](), Counter[str]()
    for one in sorted(loans, key=lambda one: (not one.is_open, one.state == "asked")):
        homes[one.home] += 1
        if len(shown) < _MOST_LOANS and homes[one.home] <= MOST_OF_HOME:
            shown.append(one)
    return [one.shown() for one in sorted(shown, key=lambda one: (not one.is_open, one.event_id, one.by))]


def hiding_of(event_id: str, row: tuple[Any, ...]) -> dict[str, Any]:
    """Return a hiding of the post `event_id`, of a row of `HIDINGS`."""
    _, by, reason, at = row
    return {"event_id": event_id, "by": by.partition("/")[0], "reason": reason, "at": rfc3339(at)}


def end_of(row: tuple[Any, ...]) -> dict[str, Any]:
    """Return the end of a post, of a row of `ENDED`."""
    event_id, lamport, reason, principal, note, at, author = row
    by, _, guest = (principal or "").partition("/")
    moderated = by != author.partition("/")[0] and reason != "deleted"
    return {
        "event_id": event_id,
        "lamport": lamport,
        "reason": reason,
        "by": by,
        **({"guest": guest} if guest else {}),
        **({"moderated": True} if moderated else {}),
        **({"note": note} if note else {}),
        "at": rfc3339(at or 0),
    }
