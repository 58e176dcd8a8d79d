"""The market's inputs and its rules, as data and pure functions.

See: docs/market.md#who-may-do-what.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final, Literal, NamedTuple

import msgspec

from hearthnet import HearthNetError
from hearthnet.core import derived_id
from hearthnet_market.distances import Position, check_rough
from hearthnet_market.loan_states import Loan

CREATED: Final = "market.post.created"
UPDATED: Final = "market.post.updated"
EXPIRED: Final = "market.post.expired"
DELETED: Final = "market.post.deleted"
HIDDEN: Final = "market.post.hidden"
UNHIDDEN: Final = "market.post.unhidden"
_LAST: Final = 2**63 - 1
MODERATORS: Final = frozenset({"trusted", "anchor"})
LOCATION: Final = ("lat", "lng", "label")
MOST_UPDATES: Final = 100
"""Updates of one post."""
MOST_TAKEN_BACK: Final = 20
"""Hidings of a post that one event takes back. Earlier versions keep such an event: it is below 2 KB."""

Category = Literal["offer", "request", "info", "emergency"]
Reason = Literal["fulfilled", "withdrawn", "user_request", "stale"]

_INVISIBLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")
"""Characters that are invisible or that reorder the visible ones."""
_INVISIBLE_IN_TEXT: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff]")


class Since(msgspec.Struct, frozen=True):
    """A page of results: at most `limit`, after the place `since_lamport`.

    The place may be any integer; it is capped at 64 bits, which is what the database can hold and no log
    reaches.
    """

    since_lamport: int
    limit: int

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "since_lamport", min(self.since_lamport, _LAST))


class ListInput(Since, frozen=True):
    """Input of `market.list`.

    A post must have all `tags`; with `since_lamport` the reply has the changes after that place. `hidden`
    selects the hidden posts in place of the others. `muted` includes posts of authors whom the caller has
    muted. `near` measures distances, and `within_km` leaves out posts that are farther, or nowhere.
    """

    category: Category | None = None
    tags: tuple[str, ...] = ()
    hidden: bool = False
    muted: bool = False
    near: Position | None = None
    within_km: float | None = None


class SearchInput(msgspec.Struct, frozen=True):
    """Input of `market.search`: at most `k` posts for `query`, with their distances from `near`."""

    query: str
    k: int
    near: Position | None = None


class PostInput(msgspec.Struct, frozen=True, omit_defaults=True):
    """Input of `market.post`; `location` is rounded to some 100 m."""

    client_id: str
    category: Category
    title: str
    body: str
    ttl_seconds: int
    location: dict[str, Any] | None = None
    tags: tuple[str, ...] = ()


class UpdateInput(msgspec.Struct, frozen=True):
    """Input of `market.update`: new values for `fields` of the post `event_id`.

    The update is refused if the post's place is no longer `expected_lamport`; 0 disables the check.
    """

    client_id: str
    event_id: str
    fields: dict[str, Any]
    expected_lamport: int = 0


class ExpireInput(msgspec.Struct, frozen=True):
    """Input of `market.expire`: ends the post `event_id`."""

    client_id: str
    event_id: str
    reason: Reason
    note: str = ""


class HideInput(msgspec.Struct, frozen=True):
    """Input of `market.hide` and `market.unhide`: the post `event_id`, and why."""

    client_id: str
    event_id: str
    reason: str


class MuteInput(msgspec.Struct, frozen=True):
    """Input of `market.mute`: the member `author`, or its guest, and whether its posts are left out."""

    author: str
    guest: str = ""
    muted: bool = True

    @property
    def principal(self) -> str:
        """The author as posts name it."""
        return f"{self.author}/{self.guest}" if self.guest else self.author


class PersonInput(msgspec.Struct, frozen=True):
    """Input of `market.remove_person`: the name of another person of the home than its owner."""

    person: str


class DeleteInput(msgspec.Struct, frozen=True):
    """Input of `market.delete`: the post `event_id`, or without one all posts of the caller."""

    client_id: str
    event_id: str = ""


class ExportInput(Since, frozen=True):
    """Input of `market.export`: events of one post, or without one all events of the caller."""

    event_id: str = ""


class SyncParams(msgspec.Struct, frozen=True):
    """Params of `community.log.sync`."""

    topic: str


class SyncInput(msgspec.Struct, frozen=True):
    """Input of `community.log.sync`.

    It has the ends of the chains that the caller holds, how much it takes, entries that lack a body,
    whether it takes compressed events and of which form, and where the page before ended.
    """

    heads: dict[str, list[str]]
    limit: int
    bodies: tuple[str, ...] = ()
    packs: bool = False
    compact: bool = False
    after: str = ""


class Hiding(NamedTuple):
    """The event that hid a post, and its author."""

    event_id: str
    author: str


class PostState(NamedTuple):
    """A post in the log.

    It has author, place of the last change, number of updates, currency, hidings, category and reservations.
    """

    author: str
    lamport: int
    updates: int
    current: bool
    hidings: tuple[Hiding, ...] = ()
    category: str = ""
    loans: tuple[Loan, ...] = ()


class Erased(NamedTuple):
    """Record of an erased event: its id, its place, and the digest of its arguments."""

    event_id: str
    lamport: int
    digest: str


def no_post(event_id: str) -> HearthNetError:
    """Return the error for a missing post."""
    return HearthNetError("not_found", f"there is no current post {event_id}; see: market.list")


def answers_for(principals: Collection[str], author: str) -> bool:
    """Return whether the author is one of the caller's `principals`, or a guest of one of them."""
    return author in principals or author.partition("/")[0] in principals


def check_expiry(author: str, principals: Collection[str], level: str, reason: str) -> None:
    """Raise unless the caller with these `principals`, at roster level `level`, may end a post of `author`.

    A member may also end the posts of its own guests.

    See: docs/market.md#who-may-do-what.

    Raises:
        HearthNetError: `unauthorized` if the principal may not end it, or not with this reason.
    """
    if answers_for(principals, author):
        return
    if level not in MODERATORS:
        raise HearthNetError("unauthorized", "only its author, or a trusted member, may end a post")
    if reason == "user_request":
        raise HearthNetError(
            "unauthorized", "user_request is the author's own reason; moderators name another"
        )


def check_update(standing: PostState, principals: Collection[str], expected: int) -> None:
    """Raise unless the caller with these `principals` may update the post.

    Raises:
        HearthNetError: `unauthorized` if it is not the author; `bad_request` if the post's place is no longer
            `expected`, or if it was updated `MOST_UPDATES` times.
    """
    if standing.author not in principals:
        raise HearthNetError("unauthorized", "only its author may change a post")
    if expected and expected != standing.lamport:
        raise HearthNetError(
            "bad_request",
            f"the post was changed meanwhile, at {standing.lamport}; read it again, and send the change once "
            "more with that lamport and a new client_id",
            details={"path": "/input/expected_lamport", "rule": "changed", "lamport": standing.lamport},
        )
    if standing.updates >= MOST_UPDATES:
        raise HearthNetError(
            "bad_request",
            f"a post is changed at most {MOST_UPDATES} times; end this one and make a new one",
            details={"path": "/input/event_id", "rule": "updates", "limit": MOST_UPDATES},
        )


def update_of(wanted: UpdateInput, standing: PostState, mine: Collection[str]) -> dict[str, Any]:
    """Return the data of the event that changes a post as `wanted`, for a caller with principals `mine`.

    Raises:
        HearthNetError: As `check_update`.
    """
    check_update(standing, mine, wanted.expected_lamport)
    return {
        "client_id": wanted.client_id,
        "target_event_id": wanted.event_id,
        "fields": without_unknown(wanted.fields),
        "revision": standing.updates + 1,
    }


def end_of(wanted: ExpireInput, standing: PostState, mine: Collection[str], level: str) -> dict[str, Any]:
    """Return the data of the event that ends a current post as `wanted`; for the rest as `check_expiry`.

    Raises:
        HearthNetError: As `check_expiry`.
    """
    check_expiry(standing.author, mine, level, wanted.reason)
    return {
        "client_id": wanted.client_id,
        "target_event_id": wanted.event_id,
        "reason": wanted.reason,
        **({"note": wanted.note} if wanted.note else {}),
    }


def hiding_of(wanted: HideInput, standing: PostState, level: str) -> dict[str, Any]:
    """Return the data of the event that hides a current post, for a caller at roster level `level`.

    Raises:
        HearthNetError: `unauthorized` if the caller is no moderator; `bad_request` if the post is hidden
            already.
    """
    if level not in MODERATORS:
        raise HearthNetError("unauthorized", "only a trusted member may hide a post")
    if standing.hidings:
        raise HearthNetError(
            "bad_request",
            f"post {wanted.event_id} is hidden already; see: market.list with hidden",
            details={"path": "/input/event_id", "rule": "already"},
        )
    return {"client_id": wanted.client_id, "target_event_id": wanted.event_id, "reason": wanted.reason}


def unhiding_of(
    wanted: HideInput, standing: PostState, caller: str, mine: Collection[str], level: str
) -> dict[str, Any]:
    """Return the data of the event that takes back the hidings of a current post.

    It names them, so that a hiding which the caller has not seen stays. A moderator takes back all; the
    author of the post, and a caller that is no longer a moderator, only those that it made itself.

    Raises:
        HearthNetError: `not_found` if the post is not hidden; `unauthorized` if the caller may not take back
            any of its hidings.
    """
    if not standing.hidings:
        raise HearthNetError("not_found", f"post {wanted.event_id} is not hidden; see: market.list")
    judges = level in MODERATORS and not answers_for(mine, standing.author)
    taken = [one.event_id for one in standing.hidings if judges or one.author == caller]
    if not taken:
        raise HearthNetError("unauthorized", "only a trusted member other than its author may show it again")
    return {
        "client_id": wanted.client_id,
        "target_event_id": wanted.event_id,
        "reason": wanted.reason,
        "hidings": taken[:MOST_TAKEN_BACK],
    }


def reused(client_id: str) -> HearthNetError:
    """Return the error for a client id of an earlier call with other arguments."""
    return HearthNetError(
        "bad_request",
        f"client_id {client_id} was used for something else; make a new one",
        details={"path": "/input/client_id", "rule": "reused"},
    )


def check_text(fields: dict[str, Any], at: str = "/input") -> None:
    """Raise for characters that are invisible or that change the display of others, and for too fine a place.

    A body may have line breaks and tabs. Texts must not be blank.

    Raises:
        HearthNetError: `bad_request`, with the path of the text or number.
    """
    location = fields.get("location") or {}
    check_rough(location, at)
    places: list[tuple[str, str, re.Pattern[str]]] = [
        ("title", fields.get("title", ""), _INVISIBLE),
        ("body", fields.get("body", ""), _INVISIBLE_IN_TEXT),
        ("note", fields.get("note", ""), _INVISIBLE_IN_TEXT),
        ("reason", fields.get("reason", ""), _INVISIBLE_IN_TEXT),
        ("location/label", location.get("label", ""), _INVISIBLE),
        *((f"tags/{index}", tag, _INVISIBLE) for index, tag in enumerate(fields.get("tags", ()))),
    ]
    for name, text, hidden in places:
        if (found := hidden.search(text)) is not None:
            raise HearthNetError(
                "bad_request",
                f"character {found.start() + 1} of {name} is U+{ord(found[0]):04X}, which nobody sees; "
                "leave it out",
                details={"path": f"{at}/{name}", "rule": "hidden"},
            )
        if text and not text.strip():
            raise HearthNetError(
                "bad_request",
                f"{name} is blank; write something that can be read",
                details={"path": f"{at}/{name}", "rule": "blank"},
            )


def without_unknown(fields: dict[str, Any]) -> dict[str, Any]:
    """Return `fields` with the location as a post keeps it: other members of it would be kept and shown."""
    location = fields.get("location")
    if location is None:
        return fields
    return {**fields, "location": {name: location[name] for name in LOCATION}}


def sweep_id(event_id: str) -> str:
    """Return the client id of the event that ends an overdue post, the same in each process."""
    return derived_id("stale post", event_id)
