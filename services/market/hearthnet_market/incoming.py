"""Checks of the events of other homes: which are kept, and which posts they may change. Pure.

See: docs/market.md#at-every-home, docs/market.md#who-may-do-what.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import msgspec

from hearthnet import HearthNetError
from hearthnet.bus import find_contract
from hearthnet.service import Event
from hearthnet.trust import Roster
from hearthnet_market.lending import BORROWER, LENDER, RESERVED
from hearthnet_market.schemas import (
    CREATED,
    DELETED,
    EXPIRED,
    HIDDEN,
    MODERATORS,
    MOST_TAKEN_BACK,
    UNHIDDEN,
    UPDATED,
    answers_for,
    check_text,
)

MAX_REVISION: Final = 1_000_000
_CAPABILITIES: Final = {
    CREATED: "market.post@1.0",
    UPDATED: "market.update@1.0",
    EXPIRED: "market.expire@1.0",
    HIDDEN: "market.hide@1.0",
    UNHIDDEN: "market.unhide@1.0",
    RESERVED: "market.reserve@1.0",
    BORROWER: "market.reserve@1.0",
    LENDER: "market.lend@1.0",
}
_POST_TEXTS: Final = ("title", "body", "location", "tags")
_TEXTS: Final = {
    CREATED: _POST_TEXTS,
    UPDATED: _POST_TEXTS,
    EXPIRED: ("note",),
    HIDDEN: ("reason",),
    UNHIDDEN: ("reason",),
    RESERVED: ("note",),
    BORROWER: (),
    LENDER: (),
}
_PREFIX: Final = "market."
_GUEST: Final = re.compile("[A-Za-z0-9._-]{1,64}")
_MAX_UNKNOWN_BYTES: Final = 2 * 1024
"""Maximum size of the data of an event of a kind that this version does not know."""
_MOST_DIGEST: Final = 128
_Text = Annotated[str, msgspec.Meta(max_length=128)]


_Hidings = Annotated[list[_Text], msgspec.Meta(min_length=1, max_length=MOST_TAKEN_BACK)]


class _Act(msgspec.Struct):
    """An event of a deleted post, as its deletion lists it; `lamport` is its place in the log there."""

    lamport: Annotated[int, msgspec.Meta(ge=1)]
    event_id: _Text
    author: _Text
    client_id: _Text
    digest: _Text


class _Deleted(msgspec.Struct):
    """A deleted post with its events."""

    event_id: _Text
    lamport: Annotated[int, msgspec.Meta(ge=1)]
    author: _Text
    acts: Annotated[list[_Act], msgspec.Meta(max_length=2_500)]


class _Deletion(msgspec.Struct):
    """The data of a deletion."""

    client_id: _Text
    posts: Annotated[list[_Deleted], msgspec.Meta(max_length=200)]
    remaining: Annotated[int, msgspec.Meta(ge=0)]


def check_incoming(home: str, event: Event) -> None:
    """Check an event that happened at `home`; events of later versions are kept, if they are small.

    Raises:
        HearthNetError: `unauthorized` if its author is neither that home nor one of its guests; `bad_request`
            for data that no request there could have made.
    """
    node, of_guest, guest = event.author.partition("/")
    if node != home:
        raise HearthNetError("unauthorized", "its author is somebody else than the home that tells it")
    # Both are in what homes answer: one that no contract allows would stop the listing at each of them.
    if (of_guest and not _GUEST.fullmatch(guest)) or len(event.arguments_digest) > _MOST_DIGEST:
        raise HearthNetError("bad_request", "malformed name of a guest, or digest of the arguments")
    data = event.data
    if event.event_type == DELETED:
        _check_deletion(data)
    elif event.event_type in _CAPABILITIES:
        _check_request(event)
    elif not event.event_type.startswith(_PREFIX) or len(msgspec.json.encode(data)) > _MAX_UNKNOWN_BYTES:
        raise HearthNetError("bad_request", "it is of an unknown kind, and large or not of the market")


def _check_deletion(data: dict[str, Any]) -> None:
    try:
        msgspec.convert(data, _Deletion)
    except msgspec.ValidationError as error:
        raise HearthNetError("bad_request", f"malformed deletion: {error}") from error


def _check_request(event: Event) -> None:
    """Check the data of an event as those of the request that made it."""
    data = dict(event.data)
    revision = data.pop("revision", 1)
    if type(revision) is not int or not 1 <= revision <= MAX_REVISION:
        raise HearthNetError("bad_request", "malformed revision")
    if event.event_type == UNHIDDEN:
        _check_hidings(data.pop("hidings", None))
    elif event.event_type in (BORROWER, LENDER):
        _check_step(data)
    if event.event_type != CREATED:
        data["event_id"] = data.pop("target_event_id", None)  # a request's own `event_id` stands nowhere
    wanted = {"params": {}, "input": {**data, "client_id": event.client_id}}
    find_contract(_CAPABILITIES[event.event_type]).check_request(wanted)
    # Of members that the contract does not name, it has not checked even the kind of their values.
    texts = data["fields"] if event.event_type == UPDATED else data
    check_text({name: texts[name] for name in _TEXTS[event.event_type] if name in texts})


def _check_step(data: dict[str, Any]) -> None:
    """Check what the request may leave out, and what the home of the event has added."""
    borrower, reservation = data.pop("borrower", None), data.get("reservation")
    if not (isinstance(reservation, str) and isinstance(borrower, str) and len(borrower) <= _MOST_DIGEST):
        raise HearthNetError("bad_request", "malformed reservation")


def _check_hidings(named: Any) -> None:
    try:
        msgspec.convert(named, _Hidings)
    except msgspec.ValidationError as error:
        raise HearthNetError("bad_request", f"malformed hidings: {error}") from error


def level_of(principal: str, roster: Roster) -> str:
    """Return the level of a member, also at the pages of its home's owner; `unknown` for its other guests.

    A page is its home's word, and so are the home's own calls.
    """
    node = principal.partition("/")[0]
    return roster.level(node) if principal in roster.principals(node) else "unknown"


def may_change(event: Event, author: str, roster: Roster) -> bool:
    """Return whether `event`, which happened at another home, changes a post of `author` here.

    For a step of a borrower, `author` is that of the reservation.

    The rules are those of the calls (`check_update`, `check_expiry`, `hiding_of`, `unhiding_of`); the author
    of the event is whom its home names, and the roster is that of now.
    """
    if event.event_type == RESERVED:
        return True
    mine = roster.principals(event.author)
    if event.event_type in (UPDATED, LENDER):
        return author in mine
    is_moderator = level_of(event.author, roster) in MODERATORS
    if event.event_type == HIDDEN:
        return is_moderator
    if event.event_type == UNHIDDEN:
        return is_moderator and not answers_for(mine, author)
    if answers_for(mine, author):
        return True
    return event.event_type == EXPIRED and is_moderator and event.data["reason"] != "user_request"
