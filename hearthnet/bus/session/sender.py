"""The way of frames out of this process: their headers, signatures, boxes and subjects.

A frame to an offer of this very process is delivered without box and server; everything else holds for it as
for any other frame, from admission to evidence.

The clocks of other nodes are learned from refused frames and used for the next ones. Without this, a
computer without a battery for its clock would be locked out. Kept for each node separately, so that a node
with a false time spoils its own calls only.

See: docs/protocol/frames.md#loopback, docs/protocol/frames.md#clock-rules.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from hearthnet.core import ids
from hearthnet.core.capability_name import Capability
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.nats.client import NatsClient, payload_too_large
from hearthnet.protocol import frame as frames
from hearthnet.protocol import subjects
from hearthnet.protocol.frame import BoxKeys, Frame
from hearthnet.protocol.header import Header, Kind
from hearthnet.protocol.replay import WINDOW_MS
from hearthnet.trust.keys import Identity

CLOCK_RULE: Final = "clock"
"""`details.rule` of an `expired` that concerns the frame itself, not a document in it."""
_ANSWERS: Final = frozenset({"reply", "frame", "replies", "offer"})
_MOST_NODES: Final = 4096


class ClockOffsets:
    """The lead of each node's clock over this one in milliseconds, where known."""

    def __init__(self) -> None:
        self._ahead: dict[str, int] = {}

    def time_at(self, node: str) -> int:
        """Return the present time by the clock of `node`, in ms since the epoch."""
        return now_ms() + self._ahead.get(node, 0)

    def ahead(self, node: str) -> int:
        """Return the lead of the clock of `node` in ms, 0 if unknown."""
        return self._ahead.get(node, 0)

    def update(self, node: str, error: HearthNetError, asked: int) -> bool:
        """Learn the time of `node` from `error`, and return whether the frame is worth repeating.

        It is if the frame was made for another time, with a lead of `asked` ms; this holds for each of many
        frames refused at once.
        """
        theirs = error.details.get("now")
        if error.code != "expired" or error.details.get("rule") != CLOCK_RULE or not isinstance(theirs, int):
            return False
        ahead = theirs - now_ms()
        if abs(ahead - self._ahead.get(node, 0)) > WINDOW_MS // 2:
            if len(self._ahead) >= _MOST_NODES:
                self._ahead.clear()
            self._ahead[node] = ahead
        return abs(ahead - asked) > WINDOW_MS // 2


class LocalProvider(Protocol):
    """The host of the offers of this process."""

    def receive_call(self, frame: Frame) -> None:
        """Answer or refuse a call."""

    def receive_control(self, frame: Frame) -> object:
        """Process a frame about a running call: ack, input, cancel."""


class Sender:
    """The identity of one process, and its frames on their way to others.

    Raises:
        HearthNetError: From all methods that send, `payload_too_large` over the server's limit, and for calls
            of another node over `MAX_FOREIGN_BYTES`; `partition`
            if the link is closed.
    """

    def __init__(self, identity: Identity, community: str, link: NatsClient) -> None:
        self.identity = identity
        self.node_id = identity.node_id
        self.instance = ids.new_instance()
        self.community = community
        self.link = link
        self.keys = BoxKeys(identity)
        self.clocks = ClockOffsets()
        self.local: LocalProvider | None = None
        """The host of this process's own offers, if there is one."""

    def header(self, kind: Kind, frame_id: str, **fields: Any) -> Header:
        """Make a header of this process, with the present time by the receiver's clock if known.

        Answers have this home's own time: no window refuses them, and others compare their clocks by them.
        """
        time = now_ms() if kind in _ANSWERS else self.clocks.time_at(fields.get("to", ""))
        return Header(
            kind=kind,
            id=frame_id,
            sender=self.node_id,
            from_instance=self.instance,
            community=self.community,
            time=time,
            **fields,
        )

    def is_local(self, node: str, instance: str) -> bool:
        """Return whether the addressed process is this one, and has a host."""
        return self.local is not None and instance == self.instance and node == self.node_id

    def send_call(self, capability: Capability, header: Header, body: bytes, *, signed: bool = False) -> None:
        """Send a call, a batch of calls or the opening of a stream to the process that `header` names.

        If no process receives it, the server reports that to the reply subject of its id.
        """
        to, instance = header.to, header.to_instance
        if self.local is not None and self.is_local(to, instance):
            self.local.receive_call(self.loopback(header, body, signed=signed))
            return
        data = self._boxed(header, body, signed=signed)
        if len(data) > frames.MAX_FOREIGN_BYTES and to != self.node_id:
            raise payload_too_large(len(data), frames.MAX_FOREIGN_BYTES, "another node")
        nobody = subjects.reply(to, self.node_id, self.instance, header.id)
        self.link.send(subjects.call(self.node_id, to, instance, capability), data, nobody)

    def send_control(self, header: Header, body: bytes) -> None:
        """Send a frame about a running call to the process that `header` names.

        If the process is gone, the server reports that to the reply subject of the call.
        """
        to, instance, call_id = header.to, header.to_instance, header.stream
        if self.local is not None and self.is_local(to, instance):
            self.local.receive_control(self.loopback(header, body))
            return
        nobody = subjects.reply(to, self.node_id, self.instance, call_id)
        subject = subjects.control(self.node_id, to, instance, call_id)
        self.link.send(subject, self._boxed(header, body), nobody)

    def send_reply(self, header: Header, body: bytes, *, signed: bool = False) -> None:
        """Send a reply, a frame of a stream or a batch of both to the other process that `header` names."""
        to, instance = header.to, header.to_instance
        if header.kind == "replies":
            subject = subjects.replies(self.node_id, to, instance)
        else:
            subject = subjects.reply(self.node_id, to, instance, header.id)
        self.link.send(subject, self._boxed(header, body, signed=signed))

    def loopback(self, header: Header, body: bytes, *, signed: bool = False) -> Frame:
        """Return the frame as its receiver in this process would open it."""
        evidence = frames.signed(header, body, self.identity) if signed else None
        size, limit = len(body if evidence is None else evidence), self.link.max_payload
        if size > limit:
            raise payload_too_large(size, limit)
        return Frame(header, body, evidence)

    def _boxed(self, header: Header, body: bytes, *, signed: bool = False) -> bytes:
        key = self.keys.to(header.to)
        if signed:
            return frames.box(frames.signed(header, body, self.identity), key)
        return frames.sealed(header, body, key)
