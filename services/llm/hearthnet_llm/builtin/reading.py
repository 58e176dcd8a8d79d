"""How far the engine has read a prompt, at the pace of a person who watches.

The engine tells it of each batch of 4 tokens; a frame comes of that at most every `PAUSE_SECONDS`, and
none of a prompt that is read within that time.
"""

from __future__ import annotations

from typing import Any, Final

from hearthnet_llm.frames import Progress

PAUSE_SECONDS: Final = 0.25
STAGE: Final = "reading"


class Reading:
    """Feed it each chunk of the engine with the time; `now` is in seconds, of any clock that never jumps."""

    def __init__(self, now: float) -> None:
        self._said = now

    def feed(self, chunk: dict[str, Any], now: float) -> Progress | None:
        """What to say of the chunk, if it is about reading and the pause is over; counted in tokens."""
        told = chunk.get("prompt_progress")
        if told is None or now - self._said < PAUSE_SECONDS:
            return None
        self._said = now
        return Progress(STAGE, told["processed"], told["total"])
