"""Detection of stop sequences in a text that arrives in pieces, without I/O.

Text that may begin a stop sequence is held back until that is decided; text from the sequence on is never
returned.
"""

from __future__ import annotations

from collections.abc import Sequence


class Stopper:
    """Detector of the one of `stops` that is complete first; `stopped` is True once it was found."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """Return the text that has become safe to show."""
        if self.stopped or not self._stops:
            return "" if self.stopped else text
        self._held += text
        # The one that ends first: which begins first depends on the pieces.
        found = [(at + len(stop), at) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            return self._release(min(found)[1])
        return self._release(len(self._held) - self._uncertain())

    def flush(self) -> str:
        """Return the text held back, at the end; empty after a stop sequence."""
        return "" if self.stopped else self._release(len(self._held))

    def _release(self, end: int) -> str:
        shown, self._held = self._held[:end], self._held[end:]
        return shown

    def _uncertain(self) -> int:
        """Return how many characters at the end may begin a stop sequence."""
        longest = max(len(stop) for stop in self._stops) - 1
        for size in range(min(longest, len(self._held)), 0, -1):
            tail = self._held[-size:]
            if any(stop.startswith(tail) for stop in self._stops):
                return size
        return 0
