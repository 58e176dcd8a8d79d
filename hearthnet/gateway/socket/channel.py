"""A stream that outlives its socket.

    provider or run --put--> Channel --take--> the socket that reads it now
                                ^--acknowledge--'

Frames are numbered and encoded once, and kept until the client has acknowledged them: after a connection
broke, the next socket continues after the last frame that the client has. The number of kept frames is
bounded. A stream that can be summarized (a model's text, a run) continues without a reader: it then drops
its oldest frames, and a reader who lacks them gets a snapshot. Any other source waits for the reader, which
the bus's own flow control passes on to the provider.

See: docs/protocol/gateway.md#resume, docs/gateway.md.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.socket import frames
from hearthnet.gateway.socket.frames import Confirm, ToolResult
from hearthnet.gateway.socket.protocol import SNAPSHOT, TERMINAL

MOST_CHARACTERS: Final = 1 << 20
"""The most characters of text that are kept; older text is dropped."""
_WAITING: Final = frozenset({"waiting", "wanted"})


class Summary:
    """The text so far, the status of each call, and the calls that wait for the client."""

    def __init__(self) -> None:
        self._pieces: deque[str] = deque()
        self._characters = 0
        self._truncated = False
        self._calls: dict[str, dict[str, Any]] = {}
        self._pending: dict[str, dict[str, Any]] = {}
        self._wanted: dict[str, dict[str, Any]] = {}

    def take(self, event: str, data: dict[str, Any]) -> None:
        """Add one frame; frames that show only progress are ignored."""
        match event:
            case "token":
                self._add_text(str(data.get("text", "")))
            case "tool_call":
                self._call(str(data.get("id", "")), name=data.get("name"), arguments=data.get("arguments"))
            case "tool_status":
                self._set_status(data)
            case "confirmation_required" | "confirmation_edited":
                self._pending[str(data.get("tool_call_id", ""))] = data
            case "tool_wanted":
                self._wanted[str(data.get("tool_call_id", ""))] = data
            case _ if event in TERMINAL:
                self._pending.clear()
                self._wanted.clear()
            case _:
                pass

    def data(self) -> dict[str, Any]:
        """Return the data of the frame `snapshot`.

        It has `text` (with `truncated` where its beginning is missing), `calls`, and the calls that wait for
        the client: `pending` and `wanted`, as in the frames that announced them.
        """
        return {
            "text": "".join(self._pieces),
            "truncated": self._truncated,
            "calls": list(self._calls.values()),
            "pending": list(self._pending.values()),
            "wanted": list(self._wanted.values()),
        }

    def _add_text(self, text: str) -> None:
        self._pieces.append(text)
        self._characters += len(text)
        while self._characters > MOST_CHARACTERS:
            self._characters -= len(self._pieces.popleft())
            self._truncated = True

    def _set_status(self, data: dict[str, Any]) -> None:
        call, status = str(data.get("tool_call_id", "")), data.get("status")
        self._call(call, name=data.get("name"), status=status, text=data.get("text"))
        if status not in _WAITING:
            self._pending.pop(call, None)
            self._wanted.pop(call, None)

    def _call(self, call: str, **said: Any) -> None:
        known = self._calls.setdefault(call, {"tool_call_id": call})
        known.update({name: value for name, value in said.items() if value is not None})


MOST_FRAMES: Final = 256
MOST_BYTES: Final = 1 << 20
"""The most bytes of a stream that are kept without acknowledgement."""


class Frame(NamedTuple):
    """A frame ready to be sent."""

    seq: int
    event: str
    text: bytes


class ChannelReader(Protocol):
    """The socket that reads a stream."""

    def wake(self) -> None:
        """Note that there are frames to `take`."""

    def replaced(self) -> None:
        """Note that another socket reads the stream now."""


class ChannelWork(Protocol):
    """The work behind a stream, which puts its frames."""

    def cancel(self) -> None:
        """Stop at the client's request; the stream ends with `done`."""

    async def handle(self, frame: ToolResult | Confirm) -> None:
        """Handle the client's answer to a question; raises if the answer is invalid."""

    def left(self) -> None:
        """Note that no socket reads the stream now."""

    def back(self) -> None:
        """Note that a socket reads the stream again."""

    async def close(self) -> None:
        """Stop, since no socket can read the stream any more."""


class Channel:
    """One stream of one client; `work` is the work behind it."""

    def __init__(self, stream: str, owner: str, *, sums_up: bool, payer: str = "") -> None:
        """Create a stream for the principal `owner`, counted with those of `payer` if that is another one.

        With `sums_up`, snapshots replace old frames.
        """
        self.stream = stream
        self.owner = owner
        self.payer = payer or owner
        self.run = ""
        """The run behind it, if any."""
        self.work: ChannelWork | None = None
        self.seq = 0
        """The number of the newest frame."""
        self.ended = False
        self.closed = False
        """Whether it can no longer be read."""
        self.left_at: float | None = None
        """The time at which the last reader left; None while there is one."""
        self._summary = Summary() if sums_up else None
        self._frames: deque[Frame] = deque()
        self._bytes = 0
        self._reader: ChannelReader | None = None
        self._room: asyncio.Future[None] | None = None

    @property
    def full(self) -> bool:
        """Return whether the limit of kept frames is reached."""
        return len(self._frames) >= MOST_FRAMES or self._bytes >= MOST_BYTES

    @property
    def read(self) -> bool:
        """Return whether a socket reads it now."""
        return self._reader is not None

    def put(self, event: str, data: dict[str, Any]) -> None:
        """Add the next frame; ignore it after the last one and after `close`."""
        if self.ended or self.closed:
            return
        self.seq += 1
        self.ended = event in TERMINAL
        text = frames.write(event, data, self.seq)
        self._frames.append(Frame(self.seq, event, text))
        self._bytes += len(text)
        if self._summary is not None:
            self._summary.take(event, data)
            while self.full and self._reader is None and len(self._frames) > 1:
                self._drop()
        if self._reader is not None:
            self._reader.wake()

    async def room(self) -> None:
        """Wait until another frame may be put.

        It waits while a reader is slow and, for a stream that cannot be summarized, while there is none. It
        also returns when the stream is closed.
        """
        while self.full and not self.closed and (self._summary is None or self._reader is not None):
            if self._room is None:
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)

    def attach(self, reader: ChannelReader, after: int) -> None:
        """Continue with `reader`, which has all frames up to `after`; notify the previous reader.

        Raises:
            HearthNetError: `bad_request` for a frame that the stream has not reached; `expired` for one that
                is no longer kept, if there is no snapshot.
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

    def detach(self, reader: ChannelReader, now: float) -> None:
        """Remove `reader`, unless another one has replaced it."""
        if self._reader is reader:
            self._reader, self.left_at = None, now
            self._make_room()
            if self.work is not None:
                self.work.left()

    def take(self, after: int, most: int) -> list[Frame]:
        """Return up to `most` frames after `after`, and the last one of the stream if next."""
        if after >= self.seq:
            return []
        if self._missing(after):
            if most <= 0:
                return []
            return [self._snapshot(), *([self._frames[-1]] if self.ended else [])]
        first = after - self._frames[0].seq + 1
        taken = [self._frames[place] for place in range(first, min(first + max(most, 0), len(self._frames)))]
        if self.ended and after + len(taken) == self.seq - 1:
            taken.append(self._frames[-1])
        return taken

    def acknowledge(self, upto: int) -> None:
        """Drop the frames up to and including `upto`, except the last one of the stream."""
        while self._frames and self._frames[0].seq <= upto and not self._only_end():
            self._drop()
        self._make_room()

    def close(self) -> None:
        """Drop all frames; the stream can no longer be read."""
        self.closed = True
        self._frames.clear()
        self._bytes = 0
        self._make_room()

    def _missing(self, after: int) -> bool:
        """Return whether the frame after `after` is no longer kept."""
        return after < self.seq and not (self._frames and self._frames[0].seq <= after + 1)

    def _snapshot(self) -> Frame:
        seq = self.seq - 1 if self.ended else self.seq
        said = self._summary.data() if self._summary is not None else {}
        return Frame(seq, SNAPSHOT, frames.write(SNAPSHOT, said, seq))

    def _only_end(self) -> bool:
        return self.ended and len(self._frames) == 1

    def _drop(self) -> None:
        self._bytes -= len(self._frames.popleft().text)

    def _make_room(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)


class Channels:
    """The streams of all clients, by their ids."""

    def __init__(self, linger_seconds: float, most_of_one: int) -> None:
        """Set the seconds for which an unread stream is kept, and the number for each client."""
        self.linger_seconds = linger_seconds
        self.most_of_one = most_of_one
        self._streams: dict[str, Channel] = {}
        self._of: dict[str, dict[str, Channel]] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[Channel]:
        return iter(list(self._streams.values()))

    def open(self, owner: str, payer: str = "", *, sums_up: bool) -> Channel:
        """Return a new stream of `owner`, which may replace the oldest ended one of `payer`.

        `payer` is with whose streams it is counted, by default those of `owner`.

        Raises:
            HearthNetError: `capacity_exceeded` if all of them are under way.
        """
        payer = payer or owner
        own = self._of.get(payer, {})
        if len(own) >= self.most_of_one:
            over = next((one for one in own.values() if one.ended and not one.read), None)
            if over is None:
                raise HearthNetError(
                    "capacity_exceeded",
                    f"you have {self.most_of_one} streams under way; end one first",
                    retry_after_ms=1_000,
                )
            self.drop(over)
        channel = Channel(ids.new_ulid(), owner, sums_up=sums_up, payer=payer)
        self._of.setdefault(payer, own)[channel.stream] = channel
        self._streams[channel.stream] = channel
        return channel

    def find(self, stream: str, owner: str) -> Channel:
        """Return the stream of `owner` with this id.

        Raises:
            HearthNetError: `not_found` for one that is unknown, gone, or of another principal.
        """
        channel = self._streams.get(stream)
        if channel is None or channel.owner != owner:
            raise HearthNetError(
                "not_found",
                f"no stream {stream[:40]!r} of yours: one is kept {self.linger_seconds:g} s after a break, "
                "while the gateway lives; resume its run, or ask again",
            )
        return channel

    def of_run(self, run: str, owner: str) -> Channel | None:
        """Return the stream of `owner` behind which this run is under way, if any."""
        own = (channel for channel in self._streams.values() if channel.owner == owner)
        return next((channel for channel in own if channel.run == run and not channel.ended), None)

    def drop(self, channel: Channel) -> None:
        """Remove a stream."""
        if self._streams.pop(channel.stream, None) is None:
            return
        channel.close()
        own = self._of[channel.payer]
        del own[channel.stream]
        if not own:
            del self._of[channel.payer]

    def sweep(self, now: float) -> list[Channel]:
        """Remove and return the streams that were unread for too long."""
        gone = [
            channel
            for channel in self._streams.values()
            if channel.left_at is not None and now - channel.left_at >= self.linger_seconds
        ]
        for channel in gone:
            self.drop(channel)
        return gone
