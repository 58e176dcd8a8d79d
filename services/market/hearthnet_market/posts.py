"""The market's inputs and its rules, as data and pure functions (capabilities.md, "market")."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from hearthnet.canonical import derived_id
from hearthnet.errors import HearthNetError

CREATED: Final = "market.post.created"
EXPIRED: Final = "market.post.expired"
MODERATORS: Final = frozenset({"trusted", "anchor"})

Category = Literal["offer", "request", "info", "emergency"]
Reason = Literal["fulfilled", "withdrawn", "user_request", "stale"]


class NoParams(msgspec.Struct, frozen=True):
    """The market's capabilities take no params."""


class ListInput(msgspec.Struct, frozen=True):
    """`market.list`: `tags` must all be there; `since_lamport` asks for what changed after it."""

    since_lamport: int
    limit: int
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


class ExpireInput(msgspec.Struct, frozen=True):
    """`market.expire`: ends the post `event_id`."""

    client_id: str
    event_id: str
    reason: Reason


def check_expiry(author: str, principal: str, level: str, reason: str) -> None:
    """Raises `unauthorized` unless `principal`, of that roster level, may end a post of `author`
    (resolution 55). A member may end what its own guests wrote, too.
    """
    if principal == author.partition("/")[0] or principal == author:
        return
    if level not in MODERATORS:
        raise HearthNetError("unauthorized", "only its author, or a trusted member, may end a post")
    if reason == "user_request":
        raise HearthNetError(
            "unauthorized", "user_request is the author's own reason; moderators name another"
        )


def sweep_id(event_id: str) -> str:
    """The client id of the event that ends an overdue post: the same whichever process sweeps it."""
    return derived_id("stale post", event_id)
