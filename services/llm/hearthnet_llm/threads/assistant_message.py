"""An answer as a message of a transcript, with its parts in order.

Thoughts come first, except those after the work of a vendor's own tool: the vendor checks their place.
"""

from __future__ import annotations

import msgspec

from hearthnet_llm.interface.content_parts import Citation, Part, TextPart, ThinkingPart
from hearthnet_llm.interface.frames import (
    CitationEvent,
    Frame,
    ReasoningBlock,
    ServerToolEvent,
    TextDelta,
    ToolCall,
)
from hearthnet_llm.interface.request import Message


class AssistantMessage:
    """Accumulator of one answer; feed it each frame in order."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._texts: list[str] = []
        self._calls: list[ToolCall] = []
        self._thoughts: list[ThinkingPart] = []
        self._served = False

    def feed(self, frame: Frame) -> None:
        """Add one frame."""
        match frame:
            case TextDelta(text):
                self._texts.append(text)
            case CitationEvent(citation):
                self._cite(citation)
            case ServerToolEvent(part):
                self._served = True
                self._end_text()
                self._parts.append(part)
            case ToolCall():
                self._calls.append(frame)
            case ReasoningBlock(thought) if self._served:
                self._end_text()
                self._parts.append(thought)
            case ReasoningBlock(thought):
                self._thoughts.append(thought)
            case _:
                pass

    @property
    def message(self) -> Message:
        """The message; its content is a string if there is nothing but text."""
        text = "".join(self._texts)
        content: str | list[Part] = text
        if self._parts:
            content = [*self._parts, *([TextPart(text)] if text else [])]
        return Message("assistant", content, self._calls, thinking=self._thoughts or None)

    def _cite(self, citation: Citation) -> None:
        """Attach the citation to the text just before, which may have several."""
        self._end_text()
        if self._parts and isinstance(last := self._parts[-1], TextPart):
            self._parts[-1] = msgspec.structs.replace(last, citations=[*(last.citations or ()), citation])

    def _end_text(self) -> None:
        text = "".join(self._texts)
        self._texts.clear()
        if text:
            self._parts.append(TextPart(text))
