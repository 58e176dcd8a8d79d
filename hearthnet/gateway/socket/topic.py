"""A topic with its followers: one source for all of them, and bounded memory.

Frames are numbered by the topic, so that each is encoded once for all followers. The numbers begin with the
time in milliseconds at which the topic was first followed: a number from an earlier process of the gateway
is older than all kept frames, and its client gets a snapshot.

See: docs/protocol/gateway.md#topics.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from hearthnet.core.times import now_ms
from hearthnet.gateway.socket import frames
from hearthnet.gateway.socket.channel import ChannelReader, Frame
from hearthnet.gateway.socket.protocol import SNAPSHOT

MOST_KEPT: Final = 256
"""Frames of a topic that are kept for clients that come back."""
RETRY_SECONDS: Final = 5.0
_log = logging.getLogger(__name__)
Publish = Callable[[str, dict[str, Any]], None]


class Feed(Protocol):
    """The source of a topic."""

    async def follow(self, publish: Publish, known: Callable[[], None]) -> None:
        """Publish events until it is cancelled; call `known` when `state` is first complete."""

    def state(self) -> dict[str, Any]:
        """Return the present state: the data of a snapshot."""


class Ring:
    """The newest frames of a topic, in order and without gaps. Pure."""

    def __init__(self, first: int, most: int = MOST_KEPT) -> None:
        """Create an empty ring; `first` is the number before the first frame."""
        self.seq = first
        self._frames: deque[Frame] = deque(maxlen=most)

    def put(self, event: str, data: dict[str, Any]) -> None:
        """Add the next frame, which may replace the oldest one."""
        self.seq += 1
        self._frames.append(Frame(self.seq, event, frames.write(event, data, self.seq)))

    def after(self, seq: int, most: int) -> list[Frame] | None:
        """Return up to `most` frames after `seq`; None if those are no longer kept."""
        oldest = self.seq - len(self._frames)
        if not oldest <= seq <= self.seq:
            return None
        first = seq - oldest
        return [self._frames[place] for place in range(first, min(first + most, len(self._frames)))]


class Topic:
    """One topic, or that of one principal."""

    def __init__(self, name: str, feed: Feed) -> None:
        self.name = name
        self.left_at: float | None = None
        """The time at which the last reader left; None while there is one."""
        self._feed = feed
        self._ring = Ring(now_ms())
        self._readers: set[ChannelReader] = set()
        self._known = False
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._readers)

    @property
    def seq(self) -> int:
        """The number of the newest frame."""
        return self._ring.seq

    def attach(self, reader: ChannelReader) -> None:
        """Add `reader`; the first one starts the source."""
        self._readers.add(reader)
        self.left_at = None
        if self._task is None:
            self._task = asyncio.create_task(self._follow(), name=f"topic {self.name}")
        reader.wake()

    def detach(self, reader: ChannelReader, now: float) -> None:
        """Remove `reader`; the last one stops the source."""
        self._readers.discard(reader)
        if not self._readers and self.left_at is None:
            self.left_at = now
            self._stop()

    def take(self, after: int, most: int) -> list[Frame]:
        """Return up to `most` frames after `after`, or a snapshot where they are not kept."""
        if not self._known or most <= 0:
            return []
        found = self._ring.after(after, most)
        if found is not None:
            return found
        seq = self.seq
        return [Frame(seq, SNAPSHOT, frames.write(SNAPSHOT, self._feed.state(), seq))]

    def acknowledge(self, upto: int) -> None:
        """Do nothing: one reader's receipt does not affect the others."""

    def put(self, event: str, data: dict[str, Any]) -> None:
        """Publish an event to all followers."""
        self._ring.put(event, data)
        self._wake()

    async def close(self) -> None:
        """Stop the source."""
        task = self._task
        self._stop()
        if task is not None:
            await asyncio.wait({task})

    def _stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    def _learned(self) -> None:
        self._known = True
        self._wake()

    def _wake(self) -> None:
        for reader in self._readers:
            reader.wake()

    async def _follow(self) -> None:
        while True:
            try:
                await self._feed.follow(self.put, self._learned)
            except Exception:
                _log.exception("the source of the topic %s broke, and is followed anew", self.name)
            await asyncio.sleep(RETRY_SECONDS)
