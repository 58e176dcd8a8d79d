"""The sender of answers to a call: the reply, or the frames of its stream.

See: docs/protocol/frames.md#replies, docs/protocol/streams.md#frames.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet.bus.session.session import Session
from hearthnet.core.times import steady_ms
from hearthnet.protocol.batch import Answered
from hearthnet.protocol.header import Header, Kind
from hearthnet.protocol.stream import KEEPALIVE_MS, TERMINAL
from hearthnet.telemetry.span import SpanRecord

ALIVE: Final = "alive"
_ENCODER: Final = msgspec.json.Encoder()


class ReplySender:
    """The sender of answers to one call, addressed by its authenticated header alone.

    `packed`: the call arrived in a batch, so its answers may be batched (bus/session/batching.py).
    """

    __slots__ = ("_is_local", "_last_ms", "_packed", "_peer", "_signed", "_to", "_trace")

    def __init__(
        self, peer: Session, header: Header, trace: SpanRecord, *, signed: bool, packed: bool
    ) -> None:
        self._peer = peer
        self._trace = trace
        self._to = header
        self._signed = signed
        self._packed = packed
        self._is_local = peer.sender.is_local(header.sender, header.from_instance)
        self._last_ms = steady_ms()

    def reply(self, body: dict[str, Any], code: str = "") -> None:
        """Send the one reply to a call."""
        self._send("reply", body, code=code, signed=self._signed)

    def frame(self, seq: int, event: str, data: dict[str, Any]) -> None:
        """Send one frame of a stream; the terminal `error` carries its code, and is signed as a reply is."""
        code = str(data.get("error", "internal_error")) if event == "error" else ""
        self._trace.frames = seq
        self._send("frame", data, seq=seq, event=event, code=code, signed=self._signed and event in TERMINAL)

    def alive_if_due(self) -> None:
        """Send a keep-alive if no frame was sent for the keep-alive interval."""
        if steady_ms() - self._last_ms >= KEEPALIVE_MS:
            self._send("frame", {}, event=ALIVE)

    async def drain(self) -> None:
        """Wait while the server reads more slowly than this process sends."""
        link = self._peer.link
        if link.is_congested:
            await link.drain()

    def _send(
        self,
        kind: Kind,
        body: dict[str, Any],
        *,
        seq: int = 0,
        event: str = "",
        code: str = "",
        signed: bool = False,
    ) -> None:
        self._last_ms = steady_ms()
        sender, to, data = self._peer.sender, self._to, _ENCODER.encode(body)
        self._trace.bytes_out += len(data)
        if self._packed and not (self._is_local or signed):
            item = Answered(id=to.id, body=msgspec.Raw(data), seq=seq, event=event, code=code)
            self._peer.batcher.add_reply(to.sender, to.from_instance, item, data)
            return
        header = sender.header(
            kind, to.id, to=to.sender, to_instance=to.from_instance, seq=seq, event=event, code=code
        )
        if self._is_local:
            self._peer.replies.deliver(sender.loopback(header, data, signed=signed))
        else:
            sender.send_reply(header, data, signed=signed)
