"""Whether a server is there, decided from what is seen of it; no I/O and no clock here.

    not looked yet   seen: there            failed: gone
    there            failed: doubtful, looked at again at once
    doubtful         seen: there            failed: gone
    gone             seen: there            failed: gone, looked at ever more rarely

A server that goes again soon after it came back is looked at as rarely as before: it does not flap.
"""

from __future__ import annotations

from typing import Final, Literal

State = Literal["unknown", "there", "doubtful", "gone"]
CALM_SECONDS: Final = 30.0
DOUBT_SECONDS: Final = 0.3
_FIRST_SECONDS: Final = 1.0
_MOST_SECONDS: Final = 30.0
_STEADY_SECONDS: Final = 60.0
"""Who has been there for so long is trusted anew."""


class Watch:
    """Tell it what was seen, at which second; it says whether the server is there and when to look again."""

    def __init__(self) -> None:
        self.state: State = "unknown"
        self._pause = _FIRST_SECONDS
        self._since = -_STEADY_SECONDS  # before it ever went, it is trusted

    @property
    def there(self) -> bool:
        """Whether its models are offered."""
        return self.state in ("there", "doubtful")

    @property
    def wait_seconds(self) -> float:
        """How long until the next look."""
        return {"there": CALM_SECONDS, "doubtful": DOUBT_SECONDS}.get(self.state, self._pause)

    def seen(self, now: float) -> None:
        """The server answered."""
        if self.state == "gone":
            self._since = now
        self.state = "there"

    def failed(self, now: float) -> None:
        """It did not."""
        if self.state == "there":
            self.state = "doubtful"
            return
        if self.state == "doubtful":
            steady = now - self._since >= _STEADY_SECONDS
            self._pause = _FIRST_SECONDS if steady else min(self._pause * 2, _MOST_SECONDS)
        elif self.state == "gone":
            self._pause = min(self._pause * 2, _MOST_SECONDS)
        self.state = "gone"
