"""Calls inside one process: from a service to its own offers, without box and server.

Only the transport differs. The frame is the same, signed where required, and admitted, judged, recorded,
answered and acknowledged like one from the server; each side receives the other's bytes and never its
objects.

See: docs/protocol/frames.md#loopback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hearthnet.core.errors import HearthNetError
from hearthnet.protocol import frame as frames
from hearthnet.protocol.frame import Frame
from hearthnet.protocol.header import Header

if TYPE_CHECKING:
    from hearthnet.bus.session.session import Session


class LocalProvider(Protocol):
    """The host of this process's own offers; neither method blocks or raises."""

    def take(self, frame: Frame) -> None:
        """Process a call, or the opening of a stream."""

    def control(self, frame: Frame) -> None:
        """Process a control frame of a running call: ack, input, cancel."""


def local_provider(peer: Session, node: str, instance: str) -> LocalProvider | None:
    """Return the host of this very process if it is the addressed one."""
    return peer.inside if instance == peer.instance and node == peer.node_id else None


def frame(peer: Session, header: Header, body: bytes, *, signed: bool = False) -> Frame:
    """Return the frame as the receiver would open it.

    Raises:
        HearthNetError: `payload_too_large`, as on the way over the server.
    """
    evidence = frames.signed(header, body, peer.identity) if signed else None
    size, limit = len(body if evidence is None else evidence), peer.link.max_payload
    if size > limit:
        raise HearthNetError(
            "payload_too_large",
            f"the frame has {size} bytes, the server takes {limit}; send it by its CID",
            details={"limit": limit},
        )
    return Frame(header, body, evidence)
