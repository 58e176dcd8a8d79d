"""Progress at the pace of a person who watches."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from hearthnet_llm.builtin.backend import PAUSE_SECONDS, Reading
from hearthnet_llm.interface.frames import PrefillProgress, to_event


def batch(processed: int) -> dict[str, Any]:
    """What the engine says after that many of 800 tokens."""
    return {"prompt_progress": {"total": 800, "cache": 0, "processed": processed, "time_ms": 1}}


@pytest.mark.req("LLM-14")
def test_of_each_batch_something_is_said_at_most_four_times_a_second() -> None:
    reading = Reading(10.0)
    times = [10.0 + number * 0.03 for number in range(200)]
    said = [(now, reading.feed(batch(4 * number), now)) for number, now in enumerate(times)]
    heard = [now for now, frame in said if frame is not None]
    assert heard[0] - 10.0 >= PAUSE_SECONDS
    assert all(later - earlier >= PAUSE_SECONDS for earlier, later in pairwise(heard))
    assert len(heard) == 22
    assert said[9] == (times[9], PrefillProgress("reading", 36, 800))


@pytest.mark.req("LLM-14")
def test_a_chunk_of_the_answer_says_nothing_of_reading() -> None:
    assert Reading(0.0).feed({"choices": []}, 99.0) is None


def test_progress_as_an_event() -> None:
    data = {"stage": "reading", "current": 1, "total": 2}
    assert to_event(PrefillProgress("reading", 1, 2)) == ("progress", data)
