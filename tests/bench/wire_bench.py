"""What a frame of 1 KB costs to write and to read.

See: docs/protocol/frames.md#layout.
"""

from __future__ import annotations

import msgspec

from hearthnet.core import ids
from hearthnet.core.times import now_ms
from hearthnet.protocol import frame as frames
from hearthnet.protocol.frame import BoxKeys
from hearthnet.protocol.header import Header
from hearthnet.trust.keys import Identity
from tests.bench.figures import Figure, microseconds

_BODY_BYTES = 1024


def figures() -> list[Figure]:
    """Sealing and opening a plain frame whose body has 1 KB, and the signed one for comparison."""
    sender, receiver = Identity.generate(), Identity.generate()
    sending, receiving = BoxKeys(sender), BoxKeys(receiver)
    header = Header(
        kind="call",
        id=ids.new_ulid(),
        sender=sender.node_id,
        community=sender.node_id,
        time=now_ms(),
        from_instance="abcdefgh",
        to=receiver.node_id,
        to_instance="hgfedcba",
        capability="rag.query@1.0",
        deadline=30_000,
    )
    empty = msgspec.json.encode({"params": {"corpus": "system"}, "input": {"query": ""}})
    text = "x" * (_BODY_BYTES - len(empty))
    body = msgspec.json.encode({"params": {"corpus": "system"}, "input": {"query": text}})

    def seal() -> bytes:
        return frames.box(frames.plain(header, body), sending.to(receiver.node_id))

    def seal_signed() -> bytes:
        return frames.box(frames.signed(header, body, sender), sending.to(receiver.node_id))

    plain, signed = seal(), seal_signed()

    def open_plain() -> object:
        return frames.read(frames.unbox(plain, receiving.of(sender.node_id)), sender.node_id)

    def open_signed() -> object:
        return frames.read(frames.unbox(signed, receiving.of(sender.node_id)), sender.node_id)

    cost = microseconds(
        {"seal": seal, "open": open_plain, "seal_signed": seal_signed, "open_signed": open_signed}, number=200
    )
    return [
        Figure("frame.seal_1k_us", cost["seal"], "us", "< 12", "encode and seal a frame of 1 KB"),
        Figure("frame.open_1k_us", cost["open"], "us", "< 12", "open and decode it"),
        Figure("frame.seal_signed_1k_us", cost["seal_signed"], "us", "", "the same, signed"),
        Figure("frame.open_signed_1k_us", cost["open_signed"], "us", "", "the same, its signature verified"),
    ]
