"""Accumulation of the frames of one answer, for a single reply, the record and the transcript."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec

from hearthnet_llm.interface.backend import Profile
from hearthnet_llm.interface.content_parts import Citation, Part, TextPart, ThinkingPart
from hearthnet_llm.interface.frames import (
    CitationEvent,
    Done,
    Frame,
    Notice,
    ReasoningBlock,
    ReasoningDelta,
    ServerToolEvent,
    TextDelta,
    ToolCall,
    ToolPath,
)
from hearthnet_llm.interface.request import Message

EMPTY: Final = "answer_empty"
_Kind = TypeVar("_Kind", bound=Frame)


class ResponseBuilder:
    """One answer; feed it each frame in order.

    `calls` is False for the continuation of a text without tools. `expected` tells that an empty answer is a
    fault.
    """

    def __init__(self, profile: Profile, *, calls: bool = True, expected: bool = False) -> None:
        self.profile = profile
        """Profile of the model that answers."""
        self._with_calls = calls
        self._expected = expected
        self._frames: list[Frame] = []
        self.thread_length: int | None = None

    def by(self, profile: Profile) -> None:
        """Set the profile of the answering model, before its first frame."""
        self.profile = profile

    def feed(self, frame: Frame) -> None:
        """Add one frame."""
        self._frames.append(frame)

    def _all(self, kind: type[_Kind]) -> list[_Kind]:
        return [frame for frame in self._frames if isinstance(frame, kind)]

    @property
    def done(self) -> Done | None:
        """The last frame, if the answer is complete."""
        return next(iter(self._all(Done)), None)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(frame.text for frame in self._all(TextDelta))

    @property
    def empty(self) -> Notice | None:
        """A notice if the model ended, or was cut off, without any text or call; else None."""
        done = self.done
        worked = any(isinstance(frame, ToolCall | ServerToolEvent) for frame in self._frames)
        if done is None or worked or self.text.strip():
            return None
        has_thought = bool(self._all(ReasoningDelta))
        if done.stop_reason == "max_tokens":
            thought = " by thinking" if has_thought else ""
            return Notice(
                EMPTY,
                f"{self.profile.model} used up its {done.tokens_out} tokens{thought} before it said "
                "anything; ask again with a larger max_tokens, with less thinking, or another model",
            )
        if done.stop_reason != "end" or not self._expected:
            return None
        only = "only thought" if has_thought else "said nothing"
        return Notice(
            EMPTY,
            f"{self.profile.model} ended without an answer: it {only}; ask again in other words, or ask "
            "another model",
        )

    @property
    def tool_path(self) -> ToolPath:
        """The way in which calls were obtained from the model."""
        return self.done.tool_path if self.done is not None else "none"

    @property
    def message(self) -> Message:
        """The answer as a message of the transcript."""
        return as_message(self._frames)

    @property
    def output(self) -> dict[str, Any]:
        """The output of llm.chat as a single reply: the message and the calls so far."""
        calls = self._all(ToolCall)
        beside = {
            "thinking": [frame.part for frame in self._all(ReasoningBlock)],
            "citations": [frame.citation for frame in self._all(CitationEvent)],
            "served": [frame.part for frame in self._all(ServerToolEvent)],
        }
        present = {name: value for name, value in beside.items() if value}
        message = {"role": "assistant", "content": self.text, **present}
        return {"message": message, **({"tool_calls": calls} if calls else {})}

    def meta(self) -> dict[str, Any]:
        """Return the metadata of the last frame; before it, those of a cancelled answer."""
        done = self.done or Done("cancelled", 0, len(self._all(TextDelta)))
        of_chat = {
            "tokens_cached": done.tokens_cached,
            "tokens_thinking": done.tokens_thinking,
            "thread_length": self.thread_length,
            "tool_path": done.tool_path,
        }
        return {
            "model": self.profile.model,
            "tokens_in": done.tokens_in,
            "tokens_out": done.tokens_out,
            "stop_reason": done.stop_reason,
            **{name: value for name, value in of_chat.items() if value is not None and self._with_calls},
        }


def is_expected(messages: Sequence[Message]) -> bool:
    """Return whether an empty answer to `messages` would be a fault.

    It is none after results of tools, even if a note about a limit follows them, because the work may be
    done; nor for a continued answer.
    """
    return messages[-1].role == "user" and not any(message.role == "tool" for message in messages[-2:])


def as_message(frames: Sequence[Frame]) -> Message:
    """Return an answer as a message; its content is a string if there is nothing but text."""
    parts: list[Part] = []
    texts: list[str] = []
    thoughts: list[ThinkingPart] = []
    served = False
    for frame in frames:
        match frame:
            case TextDelta(text):
                texts.append(text)
            case CitationEvent(citation):
                _end_text(texts, parts)
                _cite(citation, parts)
            case ReasoningBlock(thought) if not served:
                thoughts.append(thought)
            case ReasoningBlock(part) | ServerToolEvent(part):
                served = True
                _end_text(texts, parts)
                parts.append(part)
            case _:
                pass
    content: str | list[Part] = "".join(texts)
    if parts:
        _end_text(texts, parts)
        content = parts
    calls = [frame for frame in frames if isinstance(frame, ToolCall)]
    return Message("assistant", content, calls, thinking=thoughts or None)


def _end_text(texts: list[str], parts: list[Part]) -> None:
    """Make one part of the pieces of text."""
    if text := "".join(texts):
        parts.append(TextPart(text))
    texts.clear()


def _cite(citation: Citation, parts: list[Part]) -> None:
    """Attach the citation to the text just before, which may have several."""
    if parts and isinstance(last := parts[-1], TextPart):
        parts[-1] = msgspec.structs.replace(last, citations=[*(last.citations or ()), citation])
