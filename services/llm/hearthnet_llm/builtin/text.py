"""Accumulation of the chunks of one generation: text, reason of its end, and token counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hearthnet_llm.interface.frames import Done, StopReason, ToolPath
from hearthnet_llm.interface.stop_sequences import Stopper

_REASONS: Final[dict[str, StopReason]] = {"length": "max_tokens", "stop": "end"}


class Text:
    """One generation; feed it each chunk of the engine in order. `whole` is the text so far."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stopper = Stopper(stops)
        self._stop_reason: StopReason = "end"
        self._tokens_in = self._tokens_out = 0
        self.whole = ""

    @property
    def stopped(self) -> bool:
        """True after a stop sequence, when the engine need not continue."""
        return self._stopper.stopped

    @property
    def ended(self) -> bool:
        """True if the model ended by itself."""
        return self._stop_reason == "end"

    def feed(self, chunk: dict[str, Any]) -> str:
        """Return the new text to show."""
        choice = chunk["choices"][0]
        text = choice["delta"].get("content") if "delta" in choice else choice.get("text")
        timings = chunk.get("timings")
        if timings is not None:
            self._tokens_in = timings["prompt_n"] + timings["cache_n"]
            self._tokens_out = timings["predicted_n"]
        shown = self._stopper.feed(text or "")
        if choice["finish_reason"] is not None:
            self._stop_reason = _REASONS[choice["finish_reason"]]
            shown += self._stopper.flush()
        self.whole += shown
        return shown

    def done(self, tool_path: ToolPath, stop_reason: StopReason | None = None) -> Done:
        """Return the last frame."""
        reason = stop_reason or ("stop_sequence" if self.stopped else self._stop_reason)
        return Done(reason, self._tokens_in, self._tokens_out, tool_path)
