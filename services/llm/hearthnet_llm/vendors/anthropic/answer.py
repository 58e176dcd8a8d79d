"""Decoding of Anthropic Messages to frames, without I/O.

The input is the events of a stream, or the one message of a single response, whose blocks are treated as if
they had come one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from hearthnet import HearthNetError
from hearthnet.models import streamed_error
from hearthnet.text import text_weight, weight_tokens
from hearthnet_llm.interface.content_parts import (
    ModelChangePart,
    ServerCallPart,
    ServerResultPart,
    SummaryPart,
    ThinkingPart,
    ToolListingPart,
)
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
from hearthnet_llm.vendors.anthropic import blocks
from hearthnet_llm.vendors.anthropic.messages import FORMAT
from hearthnet_llm.vendors.calls import CallIds, arguments, call, stop_reason, tool_name
from hearthnet_llm.vendors.decoding import Decoder, TextPieces, count, counted
from hearthnet_llm.vendors.wire import Json, ResponseInfo

STOPS: Final[dict[str, StopReason]] = {
    "end_turn": "end",
    "stop_sequence": "stop_sequence",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "tool_use": "tool_calls",
    "refusal": "refusal",
}
_INPUT: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_CALLS: Final = ("tool_use", "server_tool_use", "mcp_tool_use")
_PAUSED: Final = ("pause_turn", "compaction")
_REPLAYED: Final = (ServerResultPart, SummaryPart, ModelChangePart, ToolListingPart)
"""Parts that arrive complete and are returned to the vendor in their position."""
_REPLAYED_KINDS: Final = ("compaction", "fallback", "mcp_tool_listing")


def decoder(info: ResponseInfo) -> Decoder:
    """Return a decoder for one answer, streamed or in one piece."""
    return Decoder(TextPieces(info.name), Content(info))


class _OpenBlock(msgspec.Struct):
    """A block that is still arriving; `id` is ours."""

    block: Json
    id: str = ""
    json: list[str] = []
    thought: list[str] = []
    signature: str = ""


class Content:
    """Accumulated events of one answer (`decoding.ContentAssembler`)."""

    def __init__(self, info: ResponseInfo) -> None:
        self._info = info
        self._open: dict[Any, _OpenBlock] = {}
        self._ids = CallIds()
        self._usage: dict[str, Any] = {}
        self._stop: str | None = None
        self._refused = ""
        self._begun: list[Any] = []
        self._complete = False
        self._called = False
        self._size = 0

    def feed(self, value: Json) -> Iterator[Frame]:
        """Yield the frames of one event.

        Raises:
            HearthNetError: as translated by `failures`, for an error in mid-stream.
        """
        match value.get("type"):
            case "content_block_delta":
                yield from self._delta(value.get("index"), value.get("delta") or {})
            case "content_block_start":
                yield from self._start(value.get("index"), value.get("content_block") or {})
            case "content_block_stop":
                yield from self._end(value.get("index"))
            case "message_start":
                yield from self._begin(value.get("message") or {})
            case "message_delta":
                self._count(value)
                self._stopped(value.get("delta") or {})
            case "message_stop":
                self._complete = True
            case "message":
                yield from self._whole(value)
            case None if not value.get("error"):
                raise decoding.no_answer(self._info.name, "")
            case "error" | None:
                raise streamed_error(self._info.name, value.get("error") or value)

    def finish(self) -> Iterator[Frame]:
        """Yield the last frames, as `decoding.ContentAssembler.finish`."""
        if self._stop is None and not self._complete:
            raise decoding.broken(self._info.name)
        for index in list(self._open):
            yield from self._end(index)
        if self._refused:
            yield Notice("refused", f"{self._info.name} declined: {self._refused}")
        if self._stop in _PAUSED:
            yield Notice("answer_paused", f"{self._info.name} paused; send its message back and it goes on")
        yield self._done()

    def _begin(self, message: Json) -> Iterator[Frame]:
        """Yield the frames of a stream's first event, which may have content.

        It has all content if a program of the vendor continues. A second first event of the same message only
        updates counts; one of another message continues the answer.
        """
        if message.get("id") in self._begun:
            self._count(message)
            return
        self._begun.append(message.get("id"))
        yield from self._whole(message)

    def _whole(self, message: Json) -> Iterator[Frame]:
        for index, block in enumerate(message.get("content") or ()):
            yield from self._start(("whole", index), block)
            yield from self._end(("whole", index))
        self._count(message)
        self._stopped(message)

    def _start(self, index: Any, block: Json) -> Iterator[Frame]:
        opened = self._open[index] = _OpenBlock(block)
        kind = block.get("type")
        if kind == "text":
            yield from self._text_frames(block.get("text"))
            for one in block.get("citations") or ():
                yield from _cited(one)
        elif kind == "tool_use":
            opened.id = self._ids.assign(block.get("id"))
            if not block.get("input"):
                yield ToolCallDelta(opened.id, "", tool_name(block.get("name")) or None)
        elif kind == "thinking":
            yield from self._think(opened, block.get("thinking"))
            opened.signature = block.get("signature") or ""
        elif kind == "fallback":
            yield Notice("model_changed", f"{_model(block, 'to')} answers instead of {_model(block, 'from')}")

    def _delta(self, index: Any, delta: Json) -> Iterator[Frame]:
        opened = self._open.get(index)
        match delta.get("type"):
            case "text_delta":
                yield from self._text_frames(delta.get("text"))
            case "citations_delta":
                yield from _cited(delta.get("citation") or {})
            case "input_json_delta" if opened is not None:
                piece = delta.get("partial_json") or ""
                opened.json.append(piece)
                self._size += text_weight(piece)
                if piece and opened.id:
                    yield ToolCallDelta(opened.id, piece)
            case "thinking_delta" if opened is not None:
                yield from self._think(opened, delta.get("thinking"))
            case "signature_delta" if opened is not None:
                opened.signature += delta.get("signature") or ""
            case "compaction_delta" if opened is not None:
                opened.block = _summed_up(opened.block, delta)

    def _end(self, index: Any) -> Iterator[Frame]:
        opened = self._open.pop(index, None)
        if opened is None:
            return
        block, kind = opened.block, str(opened.block.get("type"))
        if kind in _CALLS:
            yield self._call(opened)
        elif kind == "thinking":
            yield ReasoningBlock(
                ThinkingPart("".join(opened.thought), opened.signature or None, format=FORMAT)
            )
        elif kind == "redacted_thinking":
            yield ReasoningBlock(ThinkingPart(data=block.get("data"), format=FORMAT))
        elif kind.endswith("_tool_result") or kind in _REPLAYED_KINDS:
            part = blocks.read(block, "content")
            if isinstance(part, _REPLAYED):
                yield ServerToolEvent(part)

    def _call(self, opened: _OpenBlock) -> Frame:
        block, name = opened.block, self._info.name
        native = "".join(opened.json) if any(opened.json) else block.get("input")
        if block.get("type") == "tool_use":
            made = call(name, opened.id, block.get("name"), native)
            self._called = self._called or isinstance(made, ToolCall)
            if not isinstance(made, ToolCall):
                return made
            fields = blocks.read_struct(ToolCall, block)
            called_by = None if fields.called_by == "direct" else fields.called_by
            return msgspec.structs.replace(made, called_by=called_by, toolset=fields.toolset)
        part = blocks.read_struct(ServerCallPart, {**block, "input": arguments(native) or {}})
        return ServerToolEvent(part)

    def _text_frames(self, text: Any) -> Iterator[Frame]:
        if text:
            self._size += text_weight(text)
            yield TextDelta(text)

    def _think(self, opened: _OpenBlock, text: Any) -> Iterator[Frame]:
        if text:
            self._size += text_weight(text)
            opened.thought.append(text)
            yield ReasoningDelta(text)

    def _stopped(self, where: Mapping[str, Any]) -> None:
        if where.get("stop_reason"):
            self._stop = str(where["stop_reason"])
            self._refused = str((where.get("stop_details") or {}).get("explanation") or "")

    def _count(self, where: Mapping[str, Any]) -> None:
        """Update the counts: later ones replace earlier ones, which covered a part of the answer."""
        for name, value in (where.get("usage") or {}).items():
            if value is not None:
                self._usage[name] = value

    def _done(self) -> Done:
        reason = stop_reason(STOPS.get(str(self._stop), "end"), self._called)
        usage = self._usage
        if "output_tokens" not in usage:
            return Done(reason, weight_tokens(self._info.prompt_size), weight_tokens(self._size), "native")
        return Done(
            reason,
            sum(count(usage.get(name)) for name in _INPUT),
            count(usage["output_tokens"]),
            "native",
            counted(usage.get("cache_read_input_tokens")),
            counted((usage.get("output_tokens_details") or {}).get("thinking_tokens")),
        )


def _summed_up(block: Json, delta: Json) -> Json:
    """Return the block of a summary with the text of one delta added."""
    added = {
        name: (block.get(name) or "") + delta[name]
        for name in ("content", "encrypted_content")
        if delta.get(name) is not None
    }
    return {**block, **added}


def _cited(native: Json) -> Iterator[Frame]:
    """Yield the citation, unless its kind is unknown."""
    try:
        yield CitationEvent(blocks.read_citation(native))
    except HearthNetError:
        return


def _model(block: Json, side: str) -> str:
    return str((block.get(side) or {}).get("model") or "another model")
