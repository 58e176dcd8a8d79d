"""Proofs of authorship of market events, from an export alone. Pure.

The frame of an event is signed by the node that sent it. A guest has no node: there a token in the frame,
signed by the member who answers for the guest, names the caller (docs/market.md, "Who wrote it").
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet.core import ids
from hearthnet.core.canonical_json import digest, read_json
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol import frame as frames
from hearthnet.protocol import header as headers
from hearthnet.protocol.frame import Frame, FrameError
from hearthnet.trust.authorization import token as tokens
from hearthnet.trust.community.roster import Roster

_CAPABILITIES: Final = {
    "market.post.created": "market.post",
    "market.post.updated": "market.update",
    "market.post.expired": "market.expire",
    "market.post.deleted": "market.delete",
    "market.post.hidden": "market.hide",
    "market.post.unhidden": "market.unhide",
    "market.reservation.made": "market.reserve",
    "market.reservation.changed": "market.reserve",
    "market.loan.changed": "market.lend",
}
_SIGNED_NAMES: Final = {"target_event_id": "event_id"}
"""Members of an event that have another name in the request."""
_ABOUT_THE_CALL: Final = frozenset({"expected_lamport", "revision", "hidings", "borrower"})
"""Members of the request alone, and of the event alone: those that the market determines."""
_HASH: Final = "blake3:"
_BODY: Final = msgspec.json.Decoder(dict[str, Any])


def problem(event: dict[str, Any], roster: Roster) -> str:
    """Return the reason why an event's frame does not prove its author, empty if it does."""
    try:
        if not event["frame"]:
            return "its frame is kept back: a token in it could be used by anybody"
        if event["frame"].startswith(_HASH):
            return "its frame was too large to keep: the home has its hash alone, which proves nothing"
        raw = ids.unb64(event["frame"])
        header = headers.decode(raw.split(b"\n", 2)[1])
        return _differences(event, frames.read_signed(raw, header.sender), roster)
    except (FrameError, HearthNetError, LookupError, TypeError) as error:
        return f"its frame proves nothing: {error}"


def _differences(event: dict[str, Any], frame: Frame, roster: Roster) -> str:
    header = frame.header
    body = read_json(frame.body, _BODY)
    for what, proved, claimed in (
        ("community", header.community, event["community"]),
        ("community", roster.community_id, event["community"]),
        ("capability", header.capability.partition("@")[0], _CAPABILITIES.get(event["event_type"])),
        ("client id", header.idempotency_key, event["client_id"]),
        ("arguments", digest(body), event["digest"]),
        ("author", _principal(frame), event["author"]),
    ):
        if proved != claimed:
            return f"its frame says otherwise: {what}"
    if name := _otherwise(event, body["input"]):
        return f"its frame says otherwise: {name}"
    node = str(event["author"]).partition("/")[0]
    return "" if roster.member(node) is not None else "its author is no member of the community"


def _otherwise(event: dict[str, Any], request: dict[str, Any]) -> str:
    """Return the member of the event that differs from the request, empty if none does."""
    if event["event_type"] == "market.post.deleted":
        return ""  # the market determines the events that a deletion covers
    claimed = {_SIGNED_NAMES.get(name, name): value for name, value in event["data"].items()}
    for name in sorted((claimed.keys() | request.keys()) - _ABOUT_THE_CALL):
        filled_in = name in _FILLED_IN and name not in request
        if not filled_in and (claimed.get(name) or None) != (request.get(name) or None):
            return name
    return ""


_FILLED_IN: Final = frozenset({"ttl_seconds", "tags", "step", "reservation"})
"""Members that the contract or the market adds if the request has none."""


def _principal(frame: Frame) -> str:
    """Return the principal of the frame: its sender, or the one in its verified token."""
    header = frame.header
    if not header.token:
        return header.sender
    claims = tokens.decode(header.token)
    claims.check_use(caller=header.sender, community=header.community, now_ms=header.time)
    return f"{claims.iss}/{claims.principal}" if claims.principal else claims.iss


def differences(export: dict[str, Any]) -> list[str]:
    """Return the differences between posts and their events in the same export."""
    written: dict[str, dict[str, Any]] = {}
    for event in sorted(export["events"], key=lambda one: int(one["lamport"])):
        data = event["data"]
        if event["event_type"] == "market.post.created":
            written[event["event_id"]] = {"location": None, "tags": [], **data}
        elif event["event_type"] == "market.post.updated":
            written.get(data["target_event_id"], {}).update(data["fields"])
    return [
        f"post {post['event_id']}: {name} is not what its author wrote"
        for post in export["posts"]
        for name in ("category", "title", "body", "location", "tags")
        if post["event_id"] in written and post[name] != written[post["event_id"]].get(name)
    ]
