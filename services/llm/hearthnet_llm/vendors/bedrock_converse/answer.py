"""Decoding of Converse responses to frames, without I/O.

The input is the events of a stream, or the one object of a single response, whose blocks are treated as if
they had come one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from hearthnet.models import streamed_error
from hearthnet.text import text_weight, weight_tokens
from hearthnet_llm.interface.content_parts import ServerCallPart, ThinkingPart
from hearthnet_llm.interface.frames import (
    CitationEvent,
    Done,
    Frame,
    Notice,
    ReasoningBlock,
    ReasoningDelta,
    ServerToolEvent,
    StopReason,
    TextDelta,
    ToolCall,
    ToolCallDelta,
)
from hearthnet_llm.vendors import decoding
from hearthnet_llm.vendors.anthropic.answer import STOPS
from hearthnet_llm.vendors.bedrock import AwsPieces
from hearthnet_llm.vendors.bedrock_converse import blocks
from hearthnet_llm.vendors.bedrock_converse.messages import FORMAT
from hearthnet_llm.vendors.calls import CallIds, arguments, call, stop_reason, tool_name
from hearthnet_llm.vendors.decoding import Decoder, count, counted
from hearthnet_llm.vendors.wire import Json, ResponseInfo

_STOPS: Final[dict[str, StopReason]] = {
    **STOPS,
    "guardrail_intervened": "refusal",
    "content_filtered": "refusal",
}
_MALFORMED: Final = ("malformed_model_output", "malformed_tool_use")
_MEDIA: Final = ("image", "audio", "video", "document")
_INPUT: Final = ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")


def decoder(info: ResponseInfo) -> Decoder:
    """Return a decoder for one answer, streamed or in one piece."""
    return Decoder(AwsPieces(info.name, lambda kind, body: {kind: body}), Content(info))


class _OpenBlock(msgspec.Struct):
    """A block that is still arriving: its start, and its pieces. `id` is ours."""

    start: Json
    id: str = ""
    json: list[str] = []
    thought: list[str] = []
    signature: str = ""
    redacted: str = ""
    result: list[Any] = []


class Content:
    """Accumulated events of one answer (`decoding.ContentAssembler`)."""

    def __init__(self, info: ResponseInfo) -> None:
        self._info = info
        self._open: dict[Any, _OpenBlock] = {}
        self._ids = CallIds()
        self._usage: Json = {}
        self._stop: str | None = None
        self._called = False
        self._served: dict[str, str] = {}
        self._left_out = False
        self._size = 0

    def feed(self, value: Json) -> Iterator[Frame]:
        """Yield the frames of one event or of the whole answer."""
        if "contentBlockDelta" in value:
            event = value["contentBlockDelta"]
            yield from self._delta(self._at(event), event.get("delta") or {})
        elif "contentBlockStart" in value:
            event = value["contentBlockStart"]
            yield from self._start(event.get("contentBlockIndex"), event.get("start") or {})
        elif "contentBlockStop" in value:
            yield from self._end(value["contentBlockStop"].get("contentBlockIndex"))
        elif "output" in value:
            yield from self._whole(value)
        else:
            self._about(value)

    def finish(self) -> Iterator[Frame]:
        """Yield the last frames, as `decoding.ContentAssembler.finish`."""
        if self._stop is None:
            raise decoding.broken(self._info.name)
        for index in list(self._open):
            yield from self._end(index)
        if self._stop in _MALFORMED:
            yield Notice(self._stop, f"{self._info.name} answered with something that cannot be read")
        yield self._done()

    def _about(self, value: Json) -> None:
        """Handle an event about the answer itself."""
        if "messageStop" in value:
            self._stop = str(value["messageStop"].get("stopReason"))
        elif "metadata" in value:
            self._usage = value["metadata"].get("usage") or {}
        elif "message" in value and len(value) == 1:
            raise streamed_error(self._info.name, value)

    def _whole(self, answer: Json) -> Iterator[Frame]:
        message = (answer["output"] or {}).get("message") or {}
        for index, block in enumerate(message.get("content") or ()):
            if "toolUse" in block:
                yield from self._start(index, block)
            else:
                yield from self._block(block)
            yield from self._end(index)
        self._usage = answer.get("usage") or {}
        self._stop = str(answer.get("stopReason"))

    def _block(self, block: Json) -> Iterator[Frame]:
        """Yield the frames of a complete block that is no call."""
        if "text" in block:
            yield from self._text_frames(block["text"])
        elif "reasoningContent" in block:
            part = blocks.read_thinking(block["reasoningContent"], "reasoningContent")
            if part.text:
                yield ReasoningDelta(part.text)
            yield ReasoningBlock(msgspec.structs.replace(part, format=FORMAT))
        elif "toolResult" in block:
            yield ServerToolEvent(blocks.read_served(block["toolResult"], "toolResult", self._served))
        elif "citationsContent" in block:
            for piece in block["citationsContent"].get("content") or ():
                yield from self._text_frames(piece.get("text"))
            for one in block["citationsContent"].get("citations") or ():
                yield from _cited(one)
        else:
            yield from self._leave_out(block)

    def _leave_out(self, block: Json) -> Iterator[Frame]:
        """Yield a notice, once, for a medium: only text of models is supported here."""
        if not self._left_out and any(kind in block for kind in _MEDIA):
            self._left_out = True
            yield Notice("media_left_out", f"{self._info.name} answered with media, which were left out")

    def _at(self, event: Json) -> _OpenBlock:
        """Return the block of a delta; a text has no start event."""
        index = event.get("contentBlockIndex")
        if index not in self._open:
            self._open[index] = _OpenBlock({})
        return self._open[index]

    def _start(self, index: Any, start: Json) -> Iterator[Frame]:
        opened = self._open[index] = _OpenBlock(start)
        yield from self._leave_out(start)
        used = start.get("toolUse") or {}
        if used and used.get("type") != blocks.SERVED:
            opened.id = self._ids.assign(used.get("toolUseId"))
            if not used.get("input"):
                yield ToolCallDelta(opened.id, "", tool_name(used.get("name")) or None)

    def _delta(self, opened: _OpenBlock, delta: Json) -> Iterator[Frame]:
        if "text" in delta:
            yield from self._text_frames(delta["text"])
        elif "toolUse" in delta:
            piece = delta["toolUse"].get("input") or ""
            opened.json.append(piece)
            self._size += text_weight(piece)
            if piece and opened.id:
                yield ToolCallDelta(opened.id, piece)
        elif "reasoningContent" in delta:
            yield from self._think(opened, delta["reasoningContent"])
        elif "citation" in delta:
            yield from _cited(delta["citation"])
        elif "toolResult" in delta:
            opened.result += delta["toolResult"]

    def _think(self, opened: _OpenBlock, native: Json) -> Iterator[Frame]:
        opened.signature += native.get("signature") or ""
        opened.redacted += native.get("redactedContent") or ""
        text = native.get("text")
        if text:
            self._size += text_weight(text)
            opened.thought.append(text)
            yield ReasoningDelta(text)

    def _end(self, index: Any) -> Iterator[Frame]:
        opened = self._open.pop(index, None)
        if opened is None:
            return
        if "toolUse" in opened.start:
            yield self._call(opened)
        elif "toolResult" in opened.start:
            yield self._result(opened)
        elif opened.redacted:
            yield ReasoningBlock(ThinkingPart(data=opened.redacted, format=FORMAT))
        elif opened.thought or opened.signature:
            text = "".join(opened.thought)
            yield ReasoningBlock(ThinkingPart(text, opened.signature or None, format=FORMAT))

    def _call(self, opened: _OpenBlock) -> Frame:
        used = opened.start["toolUse"]
        native = "".join(opened.json) if any(opened.json) else used.get("input")
        if used.get("type") == blocks.SERVED:
            part = ServerCallPart(used["name"], used.get("toolUseId"), arguments(native) or {})
            self._served[str(part.id)] = part.name
            return ServerToolEvent(part)
        made = call(self._info.name, opened.id, used.get("name"), native)
        self._called = self._called or isinstance(made, ToolCall)
        return made

    def _result(self, opened: _OpenBlock) -> Frame:
        """Return a result of the vendor's own tool, whose texts arrive in pieces."""
        texts = all("text" in one for one in opened.result)
        content = [{"text": "".join(one["text"] for one in opened.result)}] if texts else opened.result
        native = {**opened.start["toolResult"], "content": content if opened.result else []}
        return ServerToolEvent(blocks.read_served(native, "toolResult", self._served))

    def _text_frames(self, text: Any) -> Iterator[Frame]:
        if text:
            self._size += text_weight(text)
            yield TextDelta(text)

    def _done(self) -> Done:
        reason = stop_reason(_STOPS.get(str(self._stop), "end"), self._called)
        usage = self._usage
        if "outputTokens" not in usage:
            return Done(reason, weight_tokens(self._info.prompt_size), weight_tokens(self._size), "native")
        counts = [count(usage.get(name)) for name in _INPUT]
        cached = counted(usage.get("cacheReadInputTokens"))
        thought = counted(_thought(usage))
        return Done(reason, sum(counts), count(usage["outputTokens"]), "native", cached, thought)


def _thought(usage: Json) -> Any:
    """Return the number of tokens of thoughts, which some models report."""
    details = usage.get("outputTokensDetails") or {}
    return usage.get("reasoningTokens", details.get("reasoningTokens"))


def _cited(native: Json) -> Iterator[Frame]:
    found = blocks.read_citation(native)
    if found is not None:
        yield CitationEvent(found)
