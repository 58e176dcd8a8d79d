"""The market's inputs and its rules, as data and pure functions.

See: docs/market.md#who-may-do-what.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal, NamedTuple

import msgspec

from hearthnet.canonical import derived_id
from hearthnet.errors import HearthNetError

CREATED: Final = "market.post.created"
UPDATED: Final = "market.post.updated"
EXPIRED: Final = "market.post.expired"
DELETED: Final = "market.post.deleted"
_LAST: Final = 2**63 - 1
MODERATORS: Final = frozenset({"trusted", "anchor"})
MOST_UPDATES: Final = 100
"""Of one post; what changes more often is another post."""

Category = Literal["offer", "request", "info", "emergency"]
Reason = Literal["fulfilled", "withdrawn", "user_request", "stale"]

_HIDDEN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")
"""What a reader does not see, or what makes it see the rest in another order."""
_HIDDEN_IN_TEXT: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff]")


class NoParams(msgspec.Struct, frozen=True):
    """The market's capabilities take no params."""


class Since(msgspec.Struct, frozen=True):
    """A part of what there is: at most `limit`, after the place `since_lamport`.

    Any number may be asked for; the view knows those of 64 bits, and no log comes that far.
    """

    since_lamport: int
    limit: int

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "since_lamport", min(self.since_lamport, _LAST))


class ListInput(Since, frozen=True):
    """`market.list`: `tags` must all be there; `since_lamport` asks for what changed after it."""

    category: Category | None = None
    tags: tuple[str, ...] = ()


class SearchInput(msgspec.Struct, frozen=True):
    """`market.search`: at most `k` posts that share words with `query`."""

    query: str
    k: int


class PostInput(msgspec.Struct, frozen=True, omit_defaults=True):
    """`market.post`: what is posted. `location` is for display only."""

    client_id: str
    category: Category
    title: str
    body: str
    ttl_seconds: int
    location: dict[str, Any] | None = None
    tags: tuple[str, ...] = ()


class UpdateInput(msgspec.Struct, frozen=True):
    """`market.update`: what is to be different in the post `event_id`, where that is at `expected_lamport`
    still (0: wherever it is).
    """

    client_id: str
    event_id: str
    fields: dict[str, Any]
    expected_lamport: int = 0


class ExpireInput(msgspec.Struct, frozen=True):
    """`market.expire`: ends the post `event_id`."""

    client_id: str
    event_id: str
    reason: Reason
    note: str = ""


class DeleteInput(msgspec.Struct, frozen=True):
    """`market.delete`: takes back the post `event_id`, or, where it names none, everything."""

    client_id: str
    event_id: str = ""
    all: bool = False


class ExportInput(Since, frozen=True):
    """`market.export`: the events of one post, or of everything that the caller wrote."""

    event_id: str = ""


class Standing(NamedTuple):
    """A post as the log has it: who wrote it, its last change, how often it was changed, and whether it is
    current.
    """

    author: str
    lamport: int
    updates: int
    current: bool


class Erased(NamedTuple):
    """What is remembered of an event that was erased: which one it was, where, and of what arguments."""

    event_id: str
    lamport: int
    digest: str


def no_post(event_id: str) -> HearthNetError:
    """What is said where there is no such post."""
    return HearthNetError("not_found", f"there is no current post {event_id}; see: market.list")


def answers_for(principal: str, author: str) -> bool:
    """Whether `principal` is the author, or the member whose guest the author is."""
    return principal in (author, author.partition("/")[0])


def check_expiry(author: str, principal: str, level: str, reason: str) -> None:
    """Raises `unauthorized` unless `principal`, of that roster level, may end a post of `author`
    (docs/market.md#who-may-do-what). A member may end what its own guests wrote, too.
    """
    if answers_for(principal, author):
        return
    if level not in MODERATORS:
        raise HearthNetError("unauthorized", "only its author, or a trusted member, may end a post")
    if reason == "user_request":
        raise HearthNetError(
            "unauthorized", "user_request is the author's own reason; moderators name another"
        )


def check_update(standing: Standing, principal: str, expected: int) -> None:
    """Raises `unauthorized` for anybody but the author, and `bad_request` where the post was changed since
    it was at `expected`, or was changed too often.
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
    """Raises `bad_request`, with the place, for characters that nobody sees and that change what is seen;
    a body may have lines and tabs.
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


def sweep_id(event_id: str) -> str:
    """The client id of the event that ends an overdue post: the same whichever process sweeps it."""
    return derived_id("stale post", event_id)
