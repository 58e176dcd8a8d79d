"""The two ends of a stream, without I/O.

    provider                                  caller
    Outgoing: open --- frame seq 1.. ------>  Incoming: open
       | window full: wait      <-- ack ---      | every 8 frames
       | done or error          ------------>    | done or error
      ended                                     ended

A frame takes the next number and enters the window; an acknowledgement removes it. At most 16 frames are
unacknowledged; the terminal one is exempt, so that a stream can always end. The caller receives each number
once and in order: any other number means a lost frame and ends the stream. Both ends measure silence: 15 s
without a frame end the stream, as do 5 s at a provider with a full window. Both therefore send a keep-alive
every 2 s: with one every 5 s, a caller that reads slowly would race against the provider's limit.

See: docs/protocol/streams.md#state-machines.
"""

from __future__ import annotations

from typing import Final

from hearthnet.core.errors import HearthNetError, Unavailable

WINDOW: Final = 16
ACK_EVERY: Final = 8
KEEPALIVE_MS: Final = 2_000
SILENCE_MS: Final = 15_000
ACK_TIMEOUT_MS: Final = 5_000
TERMINAL: Final = frozenset({"done", "error"})


class Outgoing:
    """The provider's end: numbers frames, keeps the window, detects a lost caller."""

    __slots__ = ("_active_ms", "acked", "ended", "sent")

    def __init__(self, now_ms: int) -> None:
        self.sent = 0
        self.acked = 0
        self.ended = False
        self._active_ms = now_ms

    @property
    def may_send(self) -> bool:
        """True if the window has room for another frame."""
        return not self.ended and self.sent - self.acked < WINDOW

    def next_seq(self, event: str) -> int:
        """Return the number of the frame to send now.

        Raises:
            HearthNetError: `internal_error` after the end of the stream and beyond the window.
        """
        if self.ended:
            raise HearthNetError("internal_error", "a frame after the end of its stream")
        if event in TERMINAL:
            self.ended = True
        elif not self.may_send:
            raise HearthNetError("internal_error", "a frame beyond the window")
        self.sent += 1
        return self.sent

    def unsent(self, seq: int) -> None:
        """Take back the number of frame `seq`, which could not be sent."""
        if seq == self.sent:
            self.sent -= 1
            self.ended = False

    def acknowledge(self, upto: int, now_ms: int) -> None:
        """Remove the frames up to and including `upto` from the window.

        Older and impossible numbers are ignored.
        """
        self.record_activity(now_ms)
        if self.acked < upto <= self.sent:
            self.acked = upto

    def record_activity(self, now_ms: int) -> None:
        """Record a sign of life of the caller."""
        self._active_ms = now_ms

    def lost_caller(self, now_ms: int) -> bool:
        """Return whether the caller is lost: silent for 15 s, or for 5 s with a full window."""
        silent = now_ms - self._active_ms
        return silent >= SILENCE_MS or (not self.ended and not self.may_send and silent >= ACK_TIMEOUT_MS)


class Incoming:
    """The caller's end: checks numbers, paces acknowledgements, detects a lost provider."""

    def __init__(self, now_ms: int) -> None:
        self.received = 0
        self.ended = False
        self._acked = 0
        self._active_ms = now_ms

    def accept(self, seq: int, event: str, now_ms: int) -> bool:
        """Record the frame `seq` and return whether to deliver it.

        False for a repetition, a keep-alive (0) and any frame after the end.

        Raises:
            HearthNetError: `partition` if a number is missing: a frame was lost, and the stream ends.
        """
        self._active_ms = now_ms
        if self.ended or seq <= self.received:
            return False
        if seq != self.received + 1:
            self.ended = True
            raise Unavailable(
                f"the stream lost a frame: {self.received + 1} is missing, {seq} came", rule="stream_broken"
            )
        self.received = seq
        self.ended = event in TERMINAL
        return True

    def ack_due(self, consumed: int) -> bool:
        """Return whether to acknowledge, now that the consumer has taken frame `consumed`.

        True once for every 8 frames.
        """
        if consumed - self._acked < ACK_EVERY or self.ended:
            return False
        self._acked = consumed
        return True

    def lost_provider(self, now_ms: int) -> bool:
        """Return whether the provider has been silent for 15 s."""
        return not self.ended and now_ms - self._active_ms >= SILENCE_MS
