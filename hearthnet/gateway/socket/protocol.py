"""The rules of one `hearthnet-bus.v2` connection, without I/O: order, window, close codes, limits.

    client                                             server
    waiting:   call | resume | subscribe  ---------->  opening
                            <----------  opened (seq 0)
    streaming: ack, tool_result, confirm, cancel  -->
                            <----------  seq after + 1, after + 2, ...: at most 16 that are not acknowledged
                            <----------  done | suspended | error: the last one, outside of the window
    ended:     frames that crossed it are ignored;   <-- close 1000

A topic is `following` in place of `streaming`: it has no end, and accepts only `ack` and `cancel`. A
violation of the rules closes the connection at once, with a code and a reason; nothing is sent after that.
The stream and its kept frames are in channel.py.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from hearthnet.gateway.socket.frames import Ack, BadFrame, ClientFrame, read

WINDOW: Final = 16
ACK_EVERY: Final = 8
TERMINAL: Final = frozenset({"done", "suspended", "error"})
SNAPSHOT: Final = "snapshot"

END: Final = 1000
GOING_AWAY: Final = 1001
BINARY: Final = 1003
BAD_FRAME: Final = 4400
NOT_AUTHENTICATED: Final = 4401
IDLE: Final = 4408
REPLACED: Final = 4409
TOO_LARGE: Final = 4413
VERSION: Final = 4426
LIMITS: Final = 4429

CLOSE_CODES: Final[dict[int, str]] = {
    END: "end",
    GOING_AWAY: "going_away",
    BINARY: "binary",
    BAD_FRAME: "bad_frame",
    NOT_AUTHENTICATED: "unauthorized",
    IDLE: "idle_timeout",
    REPLACED: "replaced",
    TOO_LARGE: "payload_too_large",
    VERSION: "version_unsupported",
    LIMITS: "rate_limited",
}
"""Each code with its name, which begins the reason of every close."""


class Closed(Exception):
    """The end of the connection with `code` and `reason` (at most 123 bytes, RFC 6455 5.5.1)."""

    def __init__(self, code: int, why: str = "") -> None:
        name = CLOSE_CODES[code]
        text = f"{name}: {why}" if why else name
        super().__init__(text)
        self.code = code
        self.reason = text.encode("utf-8")[:123].decode("utf-8", "ignore")


class SocketState(StrEnum):
    """The state of a connection."""

    WAITING = "waiting"
    OPENING = "opening"
    STREAMING = "streaming"
    FOLLOWING = "following"
    ENDED = "ended"


class SocketStep(StrEnum):
    """The causes of a change of state.

    Up to `cancel` they are frames of the client, by their types; from `opened` on actions of the server.
    """

    CALL = "call"
    RESUME = "resume"
    SUBSCRIBE = "subscribe"
    ACK = "ack"
    TOOL_RESULT = "tool_result"
    CONFIRM = "confirm"
    CANCEL = "cancel"
    OPENED = "opened"
    FOLLOWED = "followed"
    FINISHED = "finished"


TRANSITIONS: Final[dict[SocketState, dict[SocketStep, SocketState]]] = {
    SocketState.WAITING: {
        SocketStep.CALL: SocketState.OPENING,
        SocketStep.RESUME: SocketState.OPENING,
        SocketStep.SUBSCRIBE: SocketState.OPENING,
    },
    SocketState.OPENING: {
        SocketStep.CANCEL: SocketState.OPENING,
        SocketStep.OPENED: SocketState.STREAMING,
        SocketStep.FOLLOWED: SocketState.FOLLOWING,
        SocketStep.FINISHED: SocketState.ENDED,
    },
    SocketState.STREAMING: {
        SocketStep.ACK: SocketState.STREAMING,
        SocketStep.TOOL_RESULT: SocketState.STREAMING,
        SocketStep.CONFIRM: SocketState.STREAMING,
        SocketStep.CANCEL: SocketState.STREAMING,
        SocketStep.FINISHED: SocketState.ENDED,
    },
    SocketState.FOLLOWING: {
        SocketStep.ACK: SocketState.FOLLOWING,
        SocketStep.CANCEL: SocketState.FOLLOWING,
        SocketStep.FINISHED: SocketState.ENDED,
    },
    SocketState.ENDED: {
        SocketStep.ACK: SocketState.ENDED,
        SocketStep.TOOL_RESULT: SocketState.ENDED,
        SocketStep.CONFIRM: SocketState.ENDED,
        SocketStep.CANCEL: SocketState.ENDED,
    },
}


class SocketProtocol:
    """The rules of one connection.

    Pass received messages to `receive`, check `room` before each frame, and report each one to `sent`.
    """

    __slots__ = ("_max_bytes", "acked", "seq", "state")

    def __init__(self, max_bytes: int) -> None:
        """Create a waiting connection; `max_bytes` is the largest frame that a client may send."""
        self.state = SocketState.WAITING
        self.seq = 0
        """The number of the last frame that was sent."""
        self.acked = 0
        self._max_bytes = max_bytes

    @property
    def ended(self) -> bool:
        """Return whether the last frame was sent."""
        return self.state is SocketState.ENDED

    @property
    def room(self) -> int:
        """The number of frames that may be sent now; the frame that ends the stream always may."""
        if self.state not in (SocketState.STREAMING, SocketState.FOLLOWING):
            return 0
        return WINDOW - (self.seq - self.acked)

    def receive(self, data: str | bytes) -> ClientFrame | None:
        """Return the received frame; None for one that changes nothing.

        Bytes are a binary message, whatever they hold.

        Raises:
            Closed: The message is not allowed.
        """
        if isinstance(data, bytes):
            raise Closed(BINARY, "frames are text")
        if _size(data) > self._max_bytes:
            raise Closed(TOO_LARGE, f"a frame has at most {self._max_bytes} bytes")
        try:
            frame = read(data)
        except BadFrame as error:
            raise Closed(BAD_FRAME, str(error)) from error
        before = self.state
        self._step(SocketStep(str(frame.__struct_config__.tag)))
        if before is SocketState.ENDED:
            return None
        return self._acknowledged(frame) if isinstance(frame, Ack) else frame

    def opened(self, after: int = 0) -> None:
        """Note that frame 0 was sent; the next one is `after` + 1."""
        self._step(SocketStep.OPENED)
        self.seq = self.acked = after

    def followed(self, after: int) -> None:
        """Note the same as `opened`, for a topic."""
        self._step(SocketStep.FOLLOWED)
        self.seq = self.acked = after

    def sent(self, event: str, seq: int) -> None:
        """Note that a frame of the stream was sent.

        Raises:
            ValueError: It must not be sent now.
        """
        ends = event in TERMINAL and self.state is SocketState.STREAMING
        if not ends and self.room <= 0:
            raise ValueError("a frame beyond the window")
        if seq <= self.seq:
            raise ValueError(f"frame {seq} after frame {self.seq}")
        self.seq = seq
        if event == SNAPSHOT:
            # It replaces all frames up to its number, which need no acknowledgement of their own.
            self.acked = seq
        if ends:
            self._step(SocketStep.FINISHED)

    def finished(self) -> None:
        """Note that the last frame was sent before the stream began, or that a topic ended."""
        self._step(SocketStep.FINISHED)

    def _acknowledged(self, frame: Ack) -> Ack | None:
        if frame.upto > self.seq:
            raise Closed(BAD_FRAME, f"ack: frame {frame.upto} was not sent")
        if frame.upto <= self.acked:
            return None
        self.acked = frame.upto
        return frame

    def _step(self, step: SocketStep) -> None:
        following = TRANSITIONS[self.state].get(step)
        if following is None:
            raise Closed(BAD_FRAME, _OUT_OF_PLACE.get(self.state, f"{step} has no place here"))
        self.state = following


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


_OUT_OF_PLACE: Final = {
    SocketState.WAITING: "the first frame is call, resume or subscribe",
    SocketState.FOLLOWING: "a topic takes ack and cancel",
}


class SocketSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of `hearthnet-bus.v2`, by default those of docs/protocol/gateway.md#websocket.

    `linger_seconds`: the time for which a stream is kept after its socket broke. `opening_seconds`: the time
    for a client's first frame. `stall_seconds`: the time for which a full window may stay unacknowledged.
    `check_seconds`: the interval of the check for removed clients, whose sockets are closed. `most_streams`:
    the number of streams of one client at once.
    """

    idle_seconds: float = 120.0
    linger_seconds: float = 60.0
    opening_seconds: float = 10.0
    stall_seconds: float = 30.0
    check_seconds: float = 1.0
    max_frame_bytes: int = 1 << 20
    most_streams: int = 64

    @property
    def tick_seconds(self) -> float:
        """The interval between checks of the limits."""
        least = min(
            self.idle_seconds,
            self.linger_seconds,
            self.opening_seconds,
            self.stall_seconds,
            self.check_seconds,
        )
        return max(0.02, min(1.0, least / 4))
