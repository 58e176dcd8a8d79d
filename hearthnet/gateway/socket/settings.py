"""What the socket allows, and for how long."""

from __future__ import annotations

import msgspec


class SocketSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of `hearthnet-bus.v2`; the defaults are those of docs/protocol/gateway.md#websocket.

    `linger_seconds`: how long a stream is kept after its socket broke. `opening_seconds`: how long a client
    may take for its first frame. `stall_seconds`: how long it may leave a full window unacknowledged.
    `check_seconds`: how soon a client that was removed loses what it has open. `most_streams`: so many one
    client may have at once.
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
        """How often the limits are looked at."""
        least = min(
            self.idle_seconds,
            self.linger_seconds,
            self.opening_seconds,
            self.stall_seconds,
            self.check_seconds,
        )
        return max(0.02, min(1.0, least / 4))
