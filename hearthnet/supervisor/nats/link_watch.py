"""The state of the link to another home, and its messages for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

PATIENCE_SECONDS: Final = 5.0
"""The time after which a missing link is reported; most are made or restored in two seconds."""
_REASONS: Final = (
    ("Authorization Violation", "it refuses this node: there it does not belong to the community"),
    ("failed to verify certificate", "another server than the one that was joined answers there"),
    ("connection refused", "no node runs there"),
)


class LinkWatch:
    """Turns observations of the link into messages, one for each change.

    `said` returns the last lines of the server's log.
    """

    def __init__(self, address: str, said: Callable[[], str]) -> None:
        self._address = address
        self._said = said
        self._missing_since: float | None = None
        self.state: Literal["", "linked", "lost"] = ""

    def look(self, there: bool, now: float) -> str:
        """Note whether the link is `there` at `now` (seconds); return a message on a change."""
        if there:
            self._missing_since = None
            return self._become("linked", f"linked to the home at {self._address}")
        if self._missing_since is None:
            self._missing_since = now
        if now - self._missing_since < PATIENCE_SECONDS:
            return ""
        return self._become(
            "lost", f"no link to the home at {self._address} ({self._why()}); this home works alone meanwhile"
        )

    def _become(self, state: Literal["linked", "lost"], news: str) -> str:
        if state == self.state:
            return ""
        self.state = state
        return news

    def _why(self) -> str:
        said = self._said()
        return next((reason for words, reason in _REASONS if words in said), "no answer")
