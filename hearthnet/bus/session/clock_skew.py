"""The clocks of other nodes, learned from refused frames and used for the next ones.

Without this, a computer without a battery for its clock would be locked out. Kept for each node separately,
so that a node with a false time spoils its own calls only.

See: docs/protocol/frames.md#clock-rules.
"""

from __future__ import annotations

from typing import Final

from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.protocol.replay import WINDOW_MS

RULE: Final = "clock"
"""`details.rule` of an `expired` that concerns the frame itself, not a document in it."""
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
        if error.code != "expired" or error.details.get("rule") != RULE or not isinstance(theirs, int):
            return False
        ahead = theirs - now_ms()
        if abs(ahead - self._ahead.get(node, 0)) > WINDOW_MS // 2:
            if len(self._ahead) >= _MOST_NODES:
                self._ahead.clear()
            self._ahead[node] = ahead
        return abs(ahead - asked) > WINDOW_MS // 2
