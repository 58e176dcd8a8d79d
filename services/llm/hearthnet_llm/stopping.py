"""Stop sequences in a text that comes in pieces, without I/O.

What might be the beginning of a stop sequence is held back until it is known; nothing from the sequence on
is ever let out.
"""

from __future__ import annotations

from collections.abc import Sequence


class Stopper:
    """Looks for the first of `stops` in what it is fed; `stopped` is True from the moment it was found."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """What may be shown of all that was fed, beyond what was shown before."""
        if self.stopped or not self._stops:
            return "" if self.stopped else text
        self._held += text
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            return self._take(min(found))
        return self._take(len(self._held) - self._uncertain())

    def flush(self) -> str:
        """What was held back, at the end of the text; nothing where it was stopped."""
        return "" if self.stopped else self._take(len(self._held))

    def _take(self, end: int) -> str:
        shown, self._held = self._held[:end], self._held[end:]
        return shown

    def _uncertain(self) -> int:
        """How many characters at the end may be the beginning of a stop sequence."""
        longest = max(len(stop) for stop in self._stops) - 1
        for size in range(min(longest, len(self._held)), 0, -1):
            tail = self._held[-size:]
            if any(stop.startswith(tail) for stop in self._stops):
                return size
        return 0
