"""A member that floods a process: `python flood_worker.py HOME URL NODE INSTANCE KIND COUNT SECONDS`.

It spreads COUNT frames over SECONDS, is held to 20 % of a core, and prints as JSON what it sent, in how much
time, and how many messages it was sent in return. Up to a thousand frames are made anew while it sends, the
others are repetitions of these: they cost the attacker little, and a reader that looks into them as much.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from hearthnet.bus.bus import Bus
from hearthnet.bus.session.gossip_frames import SetDigest
from hearthnet.core import ids
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.home import Home
from hearthnet.nats.client import NatsClient
from hearthnet.protocol import batch, subjects
from hearthnet.protocol import frame as frames
from hearthnet.protocol import offer as offers
from hearthnet.protocol.batch import BatchedCall
from hearthnet.protocol.header import Header, Kind
from hearthnet.protocol.offer import Notice

SHARE: Final = 0.2
_AT_ONCE: Final = 100
_PATIENCE: Final = 5
_LIST: Final = "market.list@1.0"
_BODY: Final = b'{"params":{},"input":{}}'
Made = tuple[str, bytes]


class Sent(msgspec.Struct):
    """What an attacker did: the frames, its processor time and the time in seconds, and the answers."""

    frames: int
    cpu: float
    seconds: float
    answers: int


class Flood:
    """The frames of one attacker against one process."""

    def __init__(self, bus: Bus, link: NatsClient, node: str, instance: str) -> None:
        self.peer = bus.peer
        self.link = link
        self.node = node
        self.instance = instance
        self.key = bus.peer.sender.keys.to(node)
        self.kinds: dict[str, Callable[[], Made]] = {
            "call": self.call,
            "signed": lambda: self.call(signed=True),
            "batch": self.batch,
            "large": lambda: self.large(frames.MAX_FOREIGN_BYTES),
            "huge": lambda: self.large(bus.peer.link.max_payload),
            "control": self.control,
            "reply": self.reply,
            "find": self.find,
            "announcement": self.announcement,
            "event": self.event,
            "news": lambda: self.told("community.topic.market", b'{"events":[]}'),
            "heads": lambda: self.told("community.heads.market", self._some_heads()),
        }

    def call(self, *, signed: bool = False) -> Made:
        """A call that is answered as any other."""
        header = self._header("call", capability=_LIST, deadline=10_000)
        inner = frames.signed(header, _BODY, self.peer.identity) if signed else frames.plain(header, _BODY)
        return self._call_subject(), frames.box(inner, self.key)

    def batch(self) -> Made:
        """Sixty-four calls in a frame."""
        items = [BatchedCall(id=ids.new_ulid(), body=msgspec.Raw(_BODY), deadline=10_000)] * batch.MOST
        header = self._header("calls", capability=_LIST)
        return self._call_subject(), frames.sealed(header, batch.encode(items), self.key)

    def large(self, size: int) -> Made:
        """A call of about this size."""
        room = size - 4_096
        body = b'{"params":{},"input":{"x":"%b"}}' % (b"x" * room)
        return self._call_subject(), frames.sealed(self._header("call", capability=_LIST), body, self.key)

    def control(self) -> Made:
        """A cancellation of a call that does not run."""
        stream = ids.new_ulid()
        header = self._header("cancel", stream=stream)
        subject = subjects.control(self.peer.node_id, self.node, self.instance, stream)
        return subject, frames.sealed(header, b"{}", self.key)

    def reply(self) -> Made:
        """Answers that nobody waits for."""
        header = self._header("replies")
        body = msgspec.json.encode([{"id": ids.new_ulid(), "body": {}}] * batch.MOST)
        subject = subjects.replies(self.peer.node_id, self.node, self.instance)
        return subject, frames.sealed(header, body, self.key)

    def find(self) -> Made:
        """A question who is there."""
        header = self.peer.sender.header("find", ids.new_ulid(), capability=subjects.EVERYTHING)
        subject = subjects.find(self.peer.node_id, subjects.EVERYTHING)
        return subject, frames.signed(header, b"", self.peer.identity)

    def announcement(self) -> Made:
        """An announcement of nothing."""
        capability = parse_capability(_LIST)
        header = self.peer.sender.header("offer", ids.new_ulid(), capability=subjects.topic(capability))
        body = offers.encode(Notice((), withdrawn=False))
        return subjects.announce(self.peer.node_id, capability), frames.signed(
            header, body, self.peer.identity
        )

    def event(self) -> Made:
        """News of no event."""
        header = self.peer.sender.header("event", ids.new_ulid(), event="community.log")
        subject = subjects.event(self.peer.node_id, "community.log")
        return subject, frames.signed(header, b"{}", self.peer.identity)

    def told(self, event_type: str, body: bytes) -> Made:
        """News or heads of the event log."""
        header = self.peer.sender.header("event", ids.new_ulid(), event=event_type)
        subject = subjects.event(self.peer.node_id, event_type)
        return subject, frames.signed(header, body, self.peer.identity)

    def _some_heads(self) -> bytes:
        """Heads that differ from everybody's, and from those before."""
        return msgspec.json.encode(SetDigest(10**6, f"blake3:{ids.new_ulid()}"))

    def _header(self, kind: Kind, **fields: Any) -> Header:
        return self.peer.sender.header(
            kind, ids.new_ulid(), to=self.node, to_instance=self.instance, **fields
        )

    def _call_subject(self) -> str:
        return subjects.call(self.peer.node_id, self.node, self.instance, parse_capability(_LIST))

    async def run(self, kind: str, count: int, seconds: float) -> int:
        """Send `count` frames spread over `seconds`, or as many of them as `SHARE` of a core makes.

        A busy computer gives less than that share: then it takes up to `_PATIENCE` times as long.
        """
        make, link, sent, made = self.kinds[kind], self.link, 0, [self.kinds[kind]()]
        began, used = time.monotonic(), time.process_time()
        while sent < count and time.process_time() - used < SHARE * seconds:
            if time.monotonic() > began + _PATIENCE * seconds:
                break
            if len(made) < 1_000:
                made += [make() for _ in range(1 if kind in ("large", "huge", "batch") else _AT_ONCE // 10)]
            for number in range(sent, min(count, sent + _AT_ONCE)):
                link.send(*made[number % len(made)])
            sent += _AT_ONCE
            if link.is_congested:
                await link.drain()
            due = max((time.process_time() - used) / SHARE, sent / count * seconds)
            await asyncio.sleep(max(0.0, due - (time.monotonic() - began)))
        return min(sent, count)


async def main(home: str, url: str, node: str, instance: str, kind: str, count: str, seconds: str) -> None:
    """Flood, and print the result."""
    bus = await Bus.join(Home.resolve(Path(home)), url, "flood")
    # A connection without subscriptions: what the attacker sends to all does not come back to it.
    link = await NatsClient.connect(url, bus.peer.identity.login(), "flood")
    flood = Flood(bus, link, node, instance)
    used, began = time.process_time(), time.monotonic()
    answers = Counter[str]()
    pattern = subjects.replies_to(bus.peer.node_id, bus.peer.instance)
    await bus.peer.link.subscribe(pattern, lambda subject, data, absent: answers.update(["all"]))
    sent = await flood.run(kind, int(count), float(seconds))
    cpu, took = time.process_time() - used, time.monotonic() - began
    await link.flush_subscriptions()
    await link.close()
    sys.stdout.write(msgspec.json.encode(Sent(sent, cpu, took, answers["all"])).decode() + "\n")
    sys.stdout.flush()
    await bus.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
