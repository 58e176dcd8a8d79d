"""Other nodes' clocks: who is told that its frame is too old or too new sets the time of the next one right.

A computer without a battery for its clock would be locked out otherwise. Kept for each node
alone, so that one that lies about the time spoils nothing but its own calls.

See: docs/protocol/frames.md#clock-rules.
"""

from __future__ import annotations

from typing import Final

from hearthnet.errors import HearthNetError
from hearthnet.times import now_ms
from hearthnet.wire.replay import WINDOW_MS

RULE: Final = "clock"
"""What `details.rule` says in an `expired` that is about the frame and not about what it carries."""
_MOST_NODES: Final = 4096


class Clocks:
    """By how many milliseconds the clock of each node is ahead of ours, where it told us."""

    def __init__(self) -> None:
        self._ahead: dict[str, int] = {}

    def time_at(self, node: str) -> int:
        """The present moment by the clock of `node`, in ms since the epoch."""
        return now_ms() + self._ahead.get(node, 0)

    def ahead(self, node: str) -> int:
        """By how many ms the clock of `node` is ahead, as far as is known."""
        return self._ahead.get(node, 0)

    def learn(self, node: str, error: HearthNetError, asked: int) -> bool:
        """Whether `error` of `node` tells its time, and another than that of the frame that it refused: worth
        repeating, each of many that were refused at once. That frame was made when the clock was thought to
        be `asked` ms ahead.
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
