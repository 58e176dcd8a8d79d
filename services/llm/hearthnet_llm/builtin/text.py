"""The chunks of one generation, added up: text to show, why it ended, how many tokens it took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hearthnet_llm.frames import Done, StopReason, ToolPath
from hearthnet_llm.stopping import Stopper

_REASONS: Final[dict[str, StopReason]] = {"length": "max_tokens", "stop": "end"}


class Text:
    """Feed it each chunk of the engine in order; `whole` is the text so far."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stopper = Stopper(stops)
        self._stop_reason: StopReason = "end"
        self._tokens_in = self._tokens_out = 0
        self.whole = ""

    @property
    def stopped(self) -> bool:
        """Whether a stop sequence was met; the engine need not go on."""
        return self._stopper.stopped

    @property
    def ended(self) -> bool:
        """Whether the model came to an end by itself."""
        return self._stop_reason == "end"

    def feed(self, chunk: dict[str, Any]) -> str:
        """What is new to show."""
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
        """The last frame."""
        reason = stop_reason or ("stop_sequence" if self.stopped else self._stop_reason)
        return Done(reason, self._tokens_in, self._tokens_out, tool_path)
