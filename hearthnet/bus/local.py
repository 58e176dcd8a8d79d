"""Calls inside one process: from a service to what it offers itself, without box and server.

Only the way is another. The frame is the same, is signed where it would be, and is admitted, judged, put on
record, answered and acknowledged as one that came over the server; each side gets the other's bytes and never
its objects.

See: docs/protocol/frames.md#loopback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hearthnet.errors import HearthNetError
from hearthnet.wire import frame as frames
from hearthnet.wire.frame import Frame
from hearthnet.wire.header import Header

if TYPE_CHECKING:
    from hearthnet.bus.peer import Peer


class Inside(Protocol):
    """What this process offers itself. Neither method blocks or raises."""

    def take(self, frame: Frame) -> None:
        """A call, or the opening of a stream."""

    def control(self, frame: Frame) -> None:
        """A word about a call that runs: ack, input, cancel."""


def inside(peer: Peer, node: str, instance: str) -> Inside | None:
    """What is offered in this very process, where that is the one meant."""
    return peer.inside if instance == peer.instance and node == peer.node_id else None


def frame(peer: Peer, header: Header, body: bytes, *, signed: bool = False) -> Frame:
    """The frame as the other side would open it; `payload_too_large` as on the way over the server."""
    evidence = frames.signed(header, body, peer.identity) if signed else None
    size, limit = len(body if evidence is None else evidence), peer.link.max_payload
    if size > limit:
        raise HearthNetError(
            "payload_too_large",
            f"the frame has {size} bytes, the server takes {limit}; send it by its CID",
            details={"limit": limit},
        )
    return Frame(header, body, evidence)
