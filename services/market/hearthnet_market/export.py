"""Export format of events, with which their authorship can be verified elsewhere. Pure.

See: docs/market.md, "Who wrote it".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol import header as headers
from hearthnet.service.effects.event_log import Event, Recorded
from hearthnet.trust.authorization import token as tokens

_ANYBODY = "*"


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
    try:
        line = ids.unb64(frame).split(b"\n", 2)[1]
        token = headers.decode(line).token
        return bool(token) and tokens.decode(token).sub == _ANYBODY
    except (HearthNetError, IndexError):
        return True
