"""Event frames, which all members receive: their writer and their reader.

They are signed and not encrypted. Their contents prove themselves, so an old frame does no harm and none is
refused for its time; the signature around them only names the node for which work is done here, and that is
bounded.

See: docs/protocol/frames.md#event-frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from hearthnet.bus.session.frame_budget import FrameBudget
from hearthnet.bus.session.sender import Sender
from hearthnet.core import ids
from hearthnet.core.capability_name import Count
from hearthnet.core.rate_limits import LineBudgets
from hearthnet.core.times import steady_ms
from hearthnet.protocol import frame as frames
from hearthnet.protocol import subjects
from hearthnet.protocol.frame import Frame, FrameError
from hearthnet.protocol.header import SUBJECT_KINDS
from hearthnet.trust.community.roster import RANK

LOG: Final = "community.log"
"""Events of the community, as they happen."""
REVOKED: Final = "auth.token.revoked"
"""Revocations of tokens, as they happen."""
RELAY: Final = "community.relay"
"""Documents that this node's `auth` service learned elsewhere, for the node's other processes."""
HEADS: Final = "community.heads"
"""The extent of a node's record of both."""
LINKED: Final = "community.linked"
"""A link to another home is there again, for the processes of this node."""

FRAME_BYTES: Final = 512 * 1024
"""Maximum size of a frame of another node; the largest event fits in."""
_FULL_BYTES: Final = 64 * 1024
_BURST: Final = 2_000
_PER_SECOND: Final = 50
"""Units of work done for one other node, at once and in the long run. A signature is one, about 0.1 ms, and
so are 4 KiB: in the long run a node takes half a percent of a process's time.
"""
_UNIT_BYTES: Final = 4_096


class SetDigest(msgspec.Struct, frozen=True):
    """The extent of a set: the number of its members and a hash over them."""

    count: Count
    digest: str

    def is_behind(self, other: SetDigest) -> bool:
        """Return whether to request the other's members; of two that differ exactly one does."""
        return (self.count, self.digest) < (other.count, other.digest)


class SetDigests(msgspec.Struct, frozen=True):
    """The extent of a node's record, as it announces it."""

    events: SetDigest
    revocations: SetDigest

    def is_behind(self, other: SetDigests) -> bool:
        """Return whether to request the other's documents."""
        return self.events.is_behind(other.events) or self.revocations.is_behind(other.revocations)


class Batch(msgspec.Struct, frozen=True):
    """The body of a frame with news; each document is decoded only if it is not known yet."""

    events: tuple[msgspec.Raw, ...] = ()
    revocations: tuple[msgspec.Raw, ...] = ()


BATCH: Final = msgspec.json.Decoder(Batch)
DIGESTS: Final = msgspec.json.Decoder(SetDigests)


def batches(events: Iterable[Any], revocations: Iterable[Any]) -> Iterator[bytes]:
    """Yield the bodies of as many frames as these documents require."""
    for name, documents in (("events", events), ("revocations", revocations)):
        waiting: list[bytes] = []
        for data in map(msgspec.json.encode, documents):
            if waiting and sum(map(len, waiting)) + len(data) > _FULL_BYTES:
                yield _body(name, waiting)
                waiting = []
            waiting.append(data)
        if waiting:
            yield _body(name, waiting)


def _body(name: str, documents: list[bytes]) -> bytes:
    return b'{"%b":[%b]}' % (name.encode("ascii"), b",".join(documents))


async def publish(sender: Sender, event_type: str, body: bytes) -> None:
    """Publish an event of `event_type` to all subscribers.

    Raises:
        HearthNetError: `partition` if the connection is closed.
    """
    header = sender.header("event", ids.new_ulid(), event=event_type)
    data = frames.signed(header, body, sender.identity)
    await sender.link.publish(subjects.event(sender.node_id, event_type), data)


class GossipReader:
    """A reader of other nodes' event frames.

    `level` returns the sender's level, `line` the sender and those who answer for it.
    """

    def __init__(
        self, node: str, community: str, level: Callable[[str], str], line: Callable[[str], Sequence[str]]
    ) -> None:
        self._node = node
        self._community = community
        self._level = level
        self._line = line
        self._allowance = LineBudgets(_BURST, _PER_SECOND)
        self.budget = FrameBudget(node, "event", _BURST, _PER_SECOND)
        """What is beyond it is dropped before `open`, which would cost ten times as much to refuse it."""

    def open(self, subject: str, data: bytes) -> Frame:
        """Read the frame in `data`, from the node in its subject; cheap checks come first.

        Raises:
            FrameError: The frame is dropped.
            HearthNetError: Likewise.
        """
        _, sender = subjects.open_sender(subject)
        if RANK.get(self._level(sender), 0) < RANK["member"]:
            raise FrameError(f"{ids.short_id(sender)} is not a member")
        if sender != self._node and len(data) > FRAME_BYTES:
            raise FrameError(f"{ids.short_id(sender)} tells more than {FRAME_BYTES} bytes at once")
        self.spend(sender, 1 + len(data) // _UNIT_BYTES)
        frame = frames.read_signed(data, sender)
        header = frame.header
        if header.kind not in SUBJECT_KINDS["event"] or header.community != self._community:
            raise FrameError("not an event for this community")
        if subject != subjects.event(sender, header.event):
            raise FrameError("the event is of another type than its subject says")
        return frame

    def spend(self, sender: str, units: int) -> None:
        """Charge work for `sender`.

        Raises:
            FrameError: The sender's allowance is exceeded.
        """
        if sender != self._node and not self._allowance.take(self._line(sender), units, steady_ms()):
            raise FrameError(f"{ids.short_id(sender)} tells more than is listened to")
