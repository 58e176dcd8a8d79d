"""The frames of one answer, added up for a caller that wants one reply, and for the record of every
answer.
"""

from __future__ import annotations

from typing import Any

from hearthnet_llm.frames import Done, Frame, Token, ToolCall
from hearthnet_llm.profile import Profile


class Answer:
    """Feed it each frame in order. `calls` False: of a text that is only continued, without tools."""

    def __init__(self, profile: Profile, *, calls: bool = True) -> None:
        self._model = profile.model
        self._with_calls = calls
        self._texts: list[str] = []
        self._calls: list[ToolCall] = []
        self._done: Done | None = None

    def feed(self, frame: Frame) -> None:
        """Adds one frame."""
        match frame:
            case Token(text):
                self._texts.append(text)
            case ToolCall():
                self._calls.append(frame)
            case Done():
                self._done = frame
            case _:
                pass

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._texts)

    @property
    def calls(self) -> list[ToolCall]:
        """The calls so far."""
        return self._calls

    def meta(self) -> dict[str, Any]:
        """What the last frame says; before it has come, that the answer was cancelled."""
        done = self._done or Done("cancelled", 0, len(self._texts))
        path = {"tool_path": done.tool_path} if self._with_calls else {}
        return {
            "model": self._model,
            "tokens_in": done.tokens_in,
            "tokens_out": done.tokens_out,
            "stop_reason": done.stop_reason,
            **path,
        }
