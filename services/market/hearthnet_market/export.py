"""Export format of events, with which their authorship can be verified elsewhere. Pure.

See: docs/market.md, "Who wrote it".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hearthnet import HearthNetError
from hearthnet.core import unb64
from hearthnet.protocol import decode_header
from hearthnet.service import Event, Recorded
from hearthnet.trust import decode_token

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
