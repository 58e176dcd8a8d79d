"""The presence of a server, derived from the results of probes; no I/O and no clock here.

    unknown      seen: there            failed: gone
    there        failed: doubtful, probed again at once
    doubtful     seen: there            failed: gone
    gone         seen: there            failed: gone, probed ever more rarely

A server that goes again soon after it came back is probed as rarely as before, so that it does not flap.
"""

from __future__ import annotations

from typing import Final, Literal

State = Literal["unknown", "there", "doubtful", "gone"]
CALM_SECONDS: Final = 30.0
DOUBT_SECONDS: Final = 0.3
_FIRST_SECONDS: Final = 1.0
_MOST_SECONDS: Final = 30.0
_STEADY_SECONDS: Final = 60.0
"""A server present for this long is trusted again."""


class Watch:
    """The state of one server; give it the result and second of each probe."""

    def __init__(self) -> None:
        self.state: State = "unknown"
        self._pause = _FIRST_SECONDS
        self._since = -_STEADY_SECONDS  # trusted until it is gone for the first time

    @property
    def there(self) -> bool:
        """True if its models are offered."""
        return self.state in ("there", "doubtful")

    @property
    def wait_seconds(self) -> float:
        """The seconds until the next probe."""
        return {"there": CALM_SECONDS, "doubtful": DOUBT_SECONDS}.get(self.state, self._pause)

    def seen(self, now: float) -> None:
        """Record that the server answered."""
        if self.state == "gone":
            self._since = now
        self.state = "there"

    def failed(self, now: float) -> None:
        """Record that the server did not answer."""
        if self.state == "there":
            self.state = "doubtful"
            return
        if self.state == "doubtful":
            steady = now - self._since >= _STEADY_SECONDS
            self._pause = _FIRST_SECONDS if steady else min(self._pause * 2, _MOST_SECONDS)
        elif self.state == "gone":
            self._pause = min(self._pause * 2, _MOST_SECONDS)
        self.state = "gone"
