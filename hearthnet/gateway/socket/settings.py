"""The limits of the WebSocket protocol."""

from __future__ import annotations

import msgspec


class SocketSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of `hearthnet-bus.v2`, by default those of docs/protocol/gateway.md#websocket.

    `linger_seconds`: the time for which a stream is kept after its socket broke. `opening_seconds`: the time
    for a client's first frame. `stall_seconds`: the time for which a full window may stay unacknowledged.
    `check_seconds`: the interval of the check for removed clients, whose sockets are closed. `most_streams`:
    the number of streams of one client at once.
    """

    ping_seconds: float = 30.0
    idle_seconds: float = 120.0
    linger_seconds: float = 60.0
    opening_seconds: float = 10.0
    stall_seconds: float = 30.0
    check_seconds: float = 5.0
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
