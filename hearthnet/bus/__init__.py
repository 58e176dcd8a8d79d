"""The bus over NATS: connection, discovery, routing, calls and streams.

See: docs/protocol/README.md#layers.
"""

from __future__ import annotations

from hearthnet.bus.bus import Bus, find_contract
from hearthnet.bus.calls import Reply
from hearthnet.bus.registry import OfferView
from hearthnet.bus.streamcall import StreamCall, StreamFrame
from hearthnet.bus.watch import OfferChange, OfferWatch

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
