"""The bus over NATS: connection, discovery, routing, calls and streams.

See: docs/protocol/README.md#layers.
"""

from __future__ import annotations

from hearthnet.bus.bus import Bus, find_contract
from hearthnet.bus.calls.streaming import StreamCall, StreamFrame
from hearthnet.bus.calls.unary import Reply
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.routing.offer_watch import OfferChange, OfferWatch

__all__ = [
    "Bus",
    "OfferChange",
    "OfferView",
    "OfferWatch",
    "Reply",
    "StreamCall",
    "StreamFrame",
    "find_contract",
]
