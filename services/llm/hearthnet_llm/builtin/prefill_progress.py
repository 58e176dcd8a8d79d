"""Progress of reading a prompt, at a rate suitable for display.

The engine reports each batch of 4 tokens. A frame is made at most every `PAUSE_SECONDS`, and none for a
prompt that is read within that time.
"""

from __future__ import annotations

from typing import Any, Final

from hearthnet_llm.interface.frames import PrefillProgress

PAUSE_SECONDS: Final = 0.25
STAGE: Final = "reading"


class Reading:
    """Converter of engine chunks to progress; `now` is in seconds of a monotonic clock."""

    def __init__(self, now: float) -> None:
        self._said = now

    def feed(self, chunk: dict[str, Any], now: float) -> PrefillProgress | None:
        """Return the progress in a chunk, counted in tokens, if it has any and the pause is over."""
        told = chunk.get("prompt_progress")
        if told is None or now - self._said < PAUSE_SECONDS:
            return None
        self._said = now
        return PrefillProgress(STAGE, told["processed"], told["total"])
