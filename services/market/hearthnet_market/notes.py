"""The line beside the service's state: one thing that the owner of the home should know. Pure.

See: docs/market.md#at-every-home.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from hearthnet.core import short_id

_DAY_MS: Final = 24 * 3_600_000


class Progress(Protocol):
    """The state of the community's log at this home (`TopicLog.state`)."""

    @property
    def left(self) -> int:
        """The number of events to fetch."""

    @property
    def forks(self) -> Sequence[str]:
        """The authors whose chain forks."""

    @property
    def waits_for_day(self) -> bool:
        """Whether events of this home wait for the next day."""


class MarketNotes:
    """Collects what there is to note."""

    def __init__(self) -> None:
        self._full_for = ""
        self._full_day = 0
        self.are_mutes_lost = False

    def quota_used(self, caller: str, now_ms: int) -> None:
        """Note until midnight UTC that the node `caller` has added all that it may today."""
        self._full_for, self._full_day = caller, now_ms // _DAY_MS

    def text(self, state: Progress, now_ms: int) -> str | None:
        """Return the most urgent note, None if there is none."""
        if state.left:
            return f"fetching what was missed: {state.left} events to go"
        if self._full_for and self._full_day == now_ms // _DAY_MS:
            return f"{short_id(self._full_for)} has added all that it may today; see: hearthnet market erase"
        if state.waits_for_day:
            return "this home has written all that others keep of one day; the rest follows tomorrow"
        if state.forks:
            names = ", ".join(short_id(author) for author in state.forks[:3])
            return f"two copies of one home write as {names}; its owner should remove one of them"
        if self.are_mutes_lost:
            return "muted authors are lost, as their file was damaged; see: hearthnet market mute"
        return None
