"""Forms in which events leave the service: as the reply to their call, and for export. Pure.

With an export their authorship can be verified elsewhere.

See: docs/market.md, "Who wrote it".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hearthnet import HearthNetError, Reply
from hearthnet.core import unb64
from hearthnet.protocol import decode_header
from hearthnet.service import Event, Recorded
from hearthnet.trust import decode_token
from hearthnet_market.schemas import DELETED

_ANYBODY = "*"
_HASH = "blake3:"
"""The beginning of a frame of which only the hash is kept."""


def exported(found: Iterable[Recorded]) -> dict[str, Any]:
    """Return the events in the form of `market.export`."""
    return {"events": [_event(recorded.event, recorded.lamport) for recorded in found]}


def _event(event: Event, lamport: int) -> dict[str, Any]:
    return {
        "lamport": lamport,
        "event_id": event.event_id,
        "event_type": event.event_type,
        "author": event.author,
        "client_id": event.client_id,
        "time": event.wall_clock,
        "community": event.community_id,
        "data": event.data,
        "digest": event.arguments_digest,
        "frame": "" if _usable_by_anybody(event.frame) else event.frame,
    }


def _usable_by_anybody(frame: str) -> bool:
    """Return whether the frame holds a token that is not bound to its sender's node."""
    if frame.startswith(_HASH):
        return False
    try:
        line = unb64(frame).split(b"\n", 2)[1]
        token = decode_header(line).token
        return bool(token) and decode_token(token).sub == _ANYBODY
    except (HearthNetError, IndexError):
        return True


def reply_of(recorded: Recorded, **meta: bool) -> Reply:
    """Return the reply to the call that made this event, or that repeats it."""
    return Reply(reply_output(recorded), {"repeated": recorded.repeated, **meta})


def reply_output(recorded: Recorded) -> dict[str, Any]:
    """Return the output of the call that made this event; a deletion's has its counts."""
    output: dict[str, Any] = {"event_id": recorded.event.event_id, "lamport": recorded.lamport}
    if recorded.event.event_type == DELETED:
        data = recorded.event.data
        output |= {"deleted": len(data["posts"]), "remaining": data["remaining"]}
    return output
