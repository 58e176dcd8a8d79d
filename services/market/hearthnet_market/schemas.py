"""The market's inputs and its rules, as data and pure functions.

See: docs/market.md#who-may-do-what.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal, NamedTuple

import msgspec

from hearthnet import HearthNetError
from hearthnet.core import derived_id

CREATED: Final = "market.post.created"
UPDATED: Final = "market.post.updated"
EXPIRED: Final = "market.post.expired"
DELETED: Final = "market.post.deleted"
_LAST: Final = 2**63 - 1
MODERATORS: Final = frozenset({"trusted", "anchor"})
LOCATION: Final = ("lat", "lng", "label")
MOST_UPDATES: Final = 100
"""Updates of one post."""

Category = Literal["offer", "request", "info", "emergency"]
Reason = Literal["fulfilled", "withdrawn", "user_request", "stale"]

_HIDDEN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")
"""Characters that are invisible or that reorder the visible ones."""
_HIDDEN_IN_TEXT: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff]")


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

    A post must have all `tags`; with `since_lamport` the reply has the changes after that place.
    """

    category: Category | None = None
    tags: tuple[str, ...] = ()


class SearchInput(msgspec.Struct, frozen=True):
    """Input of `market.search`: at most `k` posts for `query`."""

    query: str
    k: int


class PostInput(msgspec.Struct, frozen=True, omit_defaults=True):
    """Input of `market.post`; `location` is for display only."""

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


class DeleteInput(msgspec.Struct, frozen=True):
    """Input of `market.delete`: the post `event_id`, or without one all posts of the caller."""

    client_id: str
    event_id: str = ""


class ExportInput(Since, frozen=True):
    """Input of `market.export`: events of one post, or without one all events of the caller."""

    event_id: str = ""


class PostState(NamedTuple):
    """A post in the log: author, place of the last change, number of updates, and currency."""

    author: str
    lamport: int
    updates: int
    current: bool


class Erased(NamedTuple):
    """Record of an erased event: its id, its place, and the digest of its arguments."""

    event_id: str
    lamport: int
    digest: str


def no_post(event_id: str) -> HearthNetError:
    """Return the error for a missing post."""
    return HearthNetError("not_found", f"there is no current post {event_id}; see: market.list")


def answers_for(principal: str, author: str) -> bool:
    """Return whether `principal` is the author, or the member whose guest the author is."""
    return principal in (author, author.partition("/")[0])


def check_expiry(author: str, principal: str, level: str, reason: str) -> None:
    """Raise unless `principal`, at roster level `level`, may end a post of `author`.

    A member may also end the posts of its own guests.

    See: docs/market.md#who-may-do-what.

    Raises:
        HearthNetError: `unauthorized` if the principal may not end it, or not with this reason.
    """
    if answers_for(principal, author):
        return
    if level not in MODERATORS:
        raise HearthNetError("unauthorized", "only its author, or a trusted member, may end a post")
    if reason == "user_request":
        raise HearthNetError(
            "unauthorized", "user_request is the author's own reason; moderators name another"
        )


def check_update(standing: PostState, principal: str, expected: int) -> None:
    """Raise unless `principal` may update the post.

    Raises:
        HearthNetError: `unauthorized` if it is not the author; `bad_request` if the post's place is no longer
            `expected`, or if it was updated `MOST_UPDATES` times.
    """
    if principal != standing.author:
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


def check_text(fields: dict[str, Any], at: str = "/input") -> None:
    """Raise for characters that are invisible or that change the display of others.

    A body may have line breaks and tabs. Texts must not be blank.

    Raises:
        HearthNetError: `bad_request`, with the path of the text.
    """
    location = fields.get("location") or {}
    places: list[tuple[str, str, re.Pattern[str]]] = [
        ("title", fields.get("title", ""), _HIDDEN),
        ("body", fields.get("body", ""), _HIDDEN_IN_TEXT),
        ("note", fields.get("note", ""), _HIDDEN_IN_TEXT),
        ("location/label", location.get("label", ""), _HIDDEN),
        *((f"tags/{index}", tag, _HIDDEN) for index, tag in enumerate(fields.get("tags", ()))),
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
    """Return `fields` with those members of the location that a post has: others would be kept and shown."""
    location = fields.get("location")
    if location is None:
        return fields
    return {**fields, "location": {name: location[name] for name in LOCATION}}


def sweep_id(event_id: str) -> str:
    """Return the client id of the event that ends an overdue post, the same in each process."""
    return derived_id("stale post", event_id)
