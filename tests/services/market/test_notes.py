"""What the owner of a home reads beside the market's state."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from hearthnet_market.notes import MarketNotes

DAY = 86_400_000
NODE = "ed25519:" + "A" * 43


class State(NamedTuple):
    """The state of the log."""

    left: int = 0
    forks: tuple[str, ...] = ()
    waits_for_day: bool = False


@pytest.mark.req("COMMLOG-6", "COMMLOG-10")
def test_the_most_urgent_note_is_shown() -> None:
    notes = MarketNotes()
    assert notes.text(State(), 0) is None
    assert "two copies of one home" in str(notes.text(State(forks=(NODE,)), 0))
    assert "follows tomorrow" in str(notes.text(State(forks=(NODE,), waits_for_day=True), 0))
    notes.quota_used(NODE, DAY)
    assert "has added all" in str(notes.text(State(waits_for_day=True), DAY + 5))
    assert notes.text(State(), 2 * DAY) is None
    assert "1200 events to go" in str(notes.text(State(left=1200), DAY))
