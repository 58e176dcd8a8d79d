"""Decoding of Ollama's responses to frames, without I/O.

The input has a line for each piece, or one object for the whole answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from hearthnet import HearthNetError
from hearthnet.models import streamed_error
from hearthnet.text import text_weight, weight_tokens
from hearthnet_llm.interface.content_parts import ThinkingPart
from hearthnet_llm.interface.frames import (
    Done,
    Frame,
    Notice,
    ReasoningBlock,
    ReasoningDelta,
    StopReason,
    TextDelta,
    ToolCall,
)
from hearthnet_llm.vendors import decoding
from hearthnet_llm.vendors.calls import CallIds, call, stop_reason
from hearthnet_llm.vendors.decoding import Decoder, TextPieces, count
from hearthnet_llm.vendors.wire import Json, ResponseInfo

_STOPS: Final[dict[str, StopReason]] = {"length": "max_tokens"}
_FORMAT: Final = "ollama"


def decoder(info: ResponseInfo) -> Decoder:
    """Return a decoder for one answer, streamed or in one piece."""
    return Decoder(TextPieces(info.name), Content(info))


class Content:
    """Accumulated objects of one answer (`decoding.ContentAssembler`)."""

    def __init__(self, info: ResponseInfo) -> None:
        self._info = info
        self._ids = CallIds()
        self._thought: list[str] = []
        self._last: Json | None = None
        self._called = False
        self._left_out = False
        self._size = 0

    def feed(self, value: Json) -> Iterator[Frame]:
        """Yield the frames of one object.

        Raises:
            HearthNetError: as translated by `failures`, for an error instead of an answer.
        """
        if value.get("error") is not None:
            raise _failure(self._info.name, value)
        message = value.get("message")
        if not isinstance(message, dict) and not value.get("done"):
            raise decoding.no_answer(self._info.name, "")
        if message:
            yield from self._message_frames(message)
        if value.get("done"):
            self._last = value

    def finish(self) -> Iterator[Frame]:
        """Yield the last frames, as `decoding.ContentAssembler.finish`."""
        if self._last is None:
            raise decoding.broken(self._info.name)
        yield from self._end_thought()
        yield self._done(self._last)

    def _message_frames(self, message: Json) -> Iterator[Frame]:
        thought, text = message.get("thinking"), message.get("content")
        if thought:
            self._size += text_weight(thought)
            self._thought.append(thought)
            yield ReasoningDelta(thought)
        if text:
            yield from self._end_thought()
            self._size += text_weight(text)
            yield TextDelta(text)
        if message.get("images") and not self._left_out:
            self._left_out = True
            yield Notice("media_left_out", f"{self._info.name} answered with media, which were left out")
        for native in message.get("tool_calls") or ():
            yield from self._end_thought()
            yield self._call(native)

    def _call(self, native: Json) -> Frame:
        function = native.get("function") or {}
        identity = self._ids.assign(native.get("id"))
        made = call(self._info.name, identity, function.get("name"), function.get("arguments"))
        self._called = self._called or isinstance(made, ToolCall)
        return made

    def _end_thought(self) -> Iterator[Frame]:
        if self._thought:
            text, self._thought = "".join(self._thought), []
            yield ReasoningBlock(ThinkingPart(text, format=_FORMAT))

    def _done(self, last: Json) -> Done:
        reason = stop_reason(_STOPS.get(str(last.get("done_reason")), "end"), self._called)
        read = _count(last.get("prompt_eval_count"), self._info.prompt_size)
        return Done(reason, read, _count(last.get("eval_count"), self._size), "native")


def _failure(name: str, value: Json) -> HearthNetError:
    """Return the error in an object; Ollama's cloud adds a status in capitals."""
    error, status = value["error"], value.get("StatusCode") or value.get("status_code")
    if isinstance(error, str) and isinstance(status, int):
        return streamed_error(name, {"status": status, "message": error})
    return streamed_error(name, error)


def _count(reported: Any, characters: int) -> int:
    """Return the reported count, else an estimate: cached prompts are not reported."""
    return weight_tokens(characters) if reported is None else count(reported)
