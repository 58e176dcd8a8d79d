"""A stream that outlives its socket.

    provider or run --put--> Channel --take--> whichever socket reads it now
                                ^--acknowledge--'

What is put is numbered and encoded once, and kept until the client has acknowledged it: a socket that comes
after another broke takes what follows the last frame that the client has. What is kept is bounded. A stream
that can be summed up (a model's words, a run) goes on without a reader: it then forgets its oldest frames,
and a reader who lacks them gets a snapshot. Otherwise the source waits for the reader, which the bus's own
flow control passes on to the provider.

See: docs/protocol/gateway.md#resume, docs/gateway.md.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

from hearthnet import ids
from hearthnet.errors import HearthNetError
from hearthnet.gateway.socket import frames
from hearthnet.gateway.socket.frames import Confirm, ToolResult
from hearthnet.gateway.socket.protocol import SNAPSHOT, TERMINAL
from hearthnet.gateway.socket.summary import Summary

MOST_FRAMES: Final = 256
MOST_BYTES: Final = 1 << 20
"""What is kept of a stream that its reader has not acknowledged."""


class Frame(NamedTuple):
    """A frame ready to be sent."""

    seq: int
    event: str
    text: bytes


class Reader(Protocol):
    """The socket that reads a stream now."""

    def wake(self) -> None:
        """There is something to `take`."""

    def replaced(self) -> None:
        """Another socket reads on."""


class Work(Protocol):
    """What goes on behind a stream, and puts its frames."""

    def cancel(self) -> None:
        """The client wants no more of it; the stream ends with `done`."""

    async def heard(self, frame: ToolResult | Confirm) -> None:
        """The client answers something that it was asked. Raises what is wrong with the answer."""

    def left(self) -> None:
        """Nobody reads the stream now."""

    def back(self) -> None:
        """Somebody reads it again."""

    async def close(self) -> None:
        """Nobody can read it any more."""


class Channel:
    """One stream of one client; `work` is what goes on behind it."""

    def __init__(self, stream: str, owner: str, *, sums_up: bool) -> None:
        """`owner` is the principal that alone may read it; `sums_up`: old frames may become a snapshot."""
        self.stream = stream
        self.owner = owner
        self.run = ""
        """The run behind it, where there is one."""
        self.work: Work | None = None
        self.seq = 0
        """The number of the newest frame."""
        self.ended = False
        self.left_at: float | None = None
        """When the last reader left; None while there is one."""
        self._summary = Summary() if sums_up else None
        self._kept: deque[Frame] = deque()
        self._bytes = 0
        self._reader: Reader | None = None
        self._room: asyncio.Future[None] | None = None
        self._closed = False

    @property
    def full(self) -> bool:
        """Whether as much is kept as may be."""
        return len(self._kept) >= MOST_FRAMES or self._bytes >= MOST_BYTES

    @property
    def kept(self) -> int:
        """How many frames are kept."""
        return len(self._kept)

    @property
    def read(self) -> bool:
        """Whether a socket reads it now."""
        return self._reader is not None

    @property
    def closed(self) -> bool:
        """Whether nobody can read it any more."""
        return self._closed

    def put(self, event: str, data: dict[str, Any]) -> None:
        """Takes the next frame; after the last one, and where nobody can read it any more, none."""
        if self.ended or self._closed:
            return
        self.seq += 1
        self.ended = event in TERMINAL
        text = frames.write(event, data, self.seq)
        self._kept.append(Frame(self.seq, event, text))
        self._bytes += len(text)
        if self._summary is not None:
            self._summary.take(event, data)
            while self.full and self._reader is None and len(self._kept) > 1:
                self._drop()
        if self._reader is not None:
            self._reader.wake()

    async def room(self) -> None:
        """Waits until another frame may be put: while a reader is slow, and, for a stream that cannot be
        summed up, while there is none. Returns where the stream is given up, too.
        """
        while self.full and not self._closed and (self._summary is None or self._reader is not None):
            if self._room is None:
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)

    def attach(self, reader: Reader, after: int) -> None:
        """`reader` has all up to frame `after` and reads on; whoever read before is told.

        Raises `bad_request` for a place that the stream has not reached, `expired` for one that is no longer
        kept and has no snapshot.
        """
        if after > self.seq:
            raise HearthNetError("bad_request", f"frame {after} of this stream was never sent")
        if self._missing(after) and self._summary is None:
            raise HearthNetError("expired", f"what came after frame {after} was acknowledged, and is gone")
        before, self._reader = self._reader, reader
        self.left_at = None
        if before is not None:
            before.replaced()
        elif self.work is not None:
            self.work.back()
        reader.wake()

    def detach(self, reader: Reader, now: float) -> None:
        """`reader` has gone; where another one reads, nothing changes."""
        if self._reader is reader:
            self._reader, self.left_at = None, now
            self._make_room()
            if self.work is not None:
                self.work.left()

    def take(self, after: int, most: int) -> list[Frame]:
        """Up to `most` frames that follow `after`, and the one that ends the stream where that is next."""
        if after >= self.seq:
            return []
        if self._missing(after):
            if most <= 0:
                return []
            return [self._snapshot(), *([self._kept[-1]] if self.ended else [])]
        first = after - self._kept[0].seq + 1
        taken = [self._kept[place] for place in range(first, min(first + max(most, 0), len(self._kept)))]
        if self.ended and after + len(taken) == self.seq - 1:
            taken.append(self._kept[-1])
        return taken

    def acknowledge(self, upto: int) -> None:
        """The client has all frames up to and including `upto`: all but the last of all are forgotten."""
        while self._kept and self._kept[0].seq <= upto and not self._only_end():
            self._drop()
        self._make_room()

    def close(self) -> None:
        """Nobody can read it any more."""
        self._closed = True
        self._kept.clear()
        self._bytes = 0
        self._make_room()

    def _missing(self, after: int) -> bool:
        """Whether the frame that follows `after` is no longer kept."""
        return after < self.seq and not (self._kept and self._kept[0].seq <= after + 1)

    def _snapshot(self) -> Frame:
        seq = self.seq - 1 if self.ended else self.seq
        said = self._summary.data() if self._summary is not None else {}
        return Frame(seq, SNAPSHOT, frames.write(SNAPSHOT, said, seq))

    def _only_end(self) -> bool:
        return self.ended and len(self._kept) == 1

    def _drop(self) -> None:
        self._bytes -= len(self._kept.popleft().text)

    def _make_room(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)


class Channels:
    """The streams of all clients, by their ids."""

    def __init__(self, linger_seconds: float, most_of_one: int) -> None:
        """A stream without a reader is kept `linger_seconds`, and of one client so many at once."""
        self.linger_seconds = linger_seconds
        self.most_of_one = most_of_one
        self._streams: dict[str, Channel] = {}
        self._of: dict[str, dict[str, Channel]] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[Channel]:
        return iter(list(self._streams.values()))

    def open(self, owner: str, *, sums_up: bool) -> Channel:
        """A new stream of `owner`; its oldest one that has ended gives way to it.

        Raises `capacity_exceeded` where all of them are under way.
        """
        own = self._of.get(owner, {})
        if len(own) >= self.most_of_one:
            over = next((one for one in own.values() if one.ended and not one.read), None)
            if over is None:
                raise HearthNetError(
                    "capacity_exceeded",
                    f"you have {self.most_of_one} streams under way; end one first",
                    retry_after_ms=1_000,
                )
            self.drop(over)
        channel = Channel(ids.new_ulid(), owner, sums_up=sums_up)
        self._of.setdefault(owner, own)[channel.stream] = channel
        self._streams[channel.stream] = channel
        return channel

    def find(self, stream: str, owner: str) -> Channel:
        """The stream of `owner`; `not_found` for one that was never there, is over, or is another's."""
        channel = self._streams.get(stream)
        if channel is None or channel.owner != owner:
            raise HearthNetError(
                "not_found",
                f"no stream {stream[:40]!r} of yours: one is kept {self.linger_seconds:g} s after a break, "
                "while the gateway lives; resume its run, or ask again",
            )
        return channel

    def of_run(self, run: str, owner: str) -> Channel | None:
        """The stream of `owner` behind which this run is under way."""
        own = self._of.get(owner, {}).values()
        return next((channel for channel in own if channel.run == run and not channel.ended), None)

    def drop(self, channel: Channel) -> None:
        """Forgets a stream."""
        if self._streams.pop(channel.stream, None) is None:
            return
        channel.close()
        own = self._of[channel.owner]
        del own[channel.stream]
        if not own:
            del self._of[channel.owner]

    def sweep(self, now: float) -> list[Channel]:
        """Forgets the streams whose readers stayed away, and says which these were."""
        gone = [
            channel
            for channel in self._streams.values()
            if channel.left_at is not None and now - channel.left_at >= self.linger_seconds
        ]
        for channel in gone:
            self.drop(channel)
        return gone
