"""The frames of a model's answer: a closed union.

An answer has any number of `TextDelta`, `CitationEvent`, `ReasoningDelta`, `ReasoningBlock`,
`ServerToolEvent`, `ToolCallDelta`, `ToolCall`, `Notice` and `PrefillProgress`, in the order in which they
occur, then exactly one `Done`. A `ToolCall` is complete and its arguments are parsed; `ReasoningDelta`,
deltas and progress are for display. A `ReasoningBlock` and a `ServerToolEvent` part are complete too: some
vendors require them in the next request. A failure is a `HearthNetError` instead of a frame. `event` is the
name of a frame in the stream.

See: docs/capabilities.md#llmchat20.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from hearthnet_llm.interface.content_parts import CacheHint, Citation, ServerPart, ThinkingPart

StopReason = Literal["end", "max_tokens", "stop_sequence", "cancelled", "tool_calls", "refusal"]
ToolPath = Literal["native", "grammar", "text", "none"]


class TextDelta(msgspec.Struct, frozen=True):
    """The next piece of text, in whole characters."""

    event: ClassVar = "token"
    text: str


class CitationEvent(msgspec.Struct, frozen=True):
    """The source of the text just before."""

    event: ClassVar = "citation"
    citation: Citation


class ReasoningDelta(msgspec.Struct, frozen=True):
    """The next piece of the model's visible thoughts."""

    event: ClassVar = "thinking"
    text: str


class ReasoningBlock(msgspec.Struct, frozen=True):
    """One complete thought, to be returned in the assistant message of later requests."""

    event: ClassVar = "thought"
    part: ThinkingPart


class ServerToolEvent(msgspec.Struct, frozen=True):
    """A call of a tool run by the vendor, or its result, to be returned in later requests."""

    event: ClassVar = "served"
    part: ServerPart


class ToolCallDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    """A piece of a call's arguments as JSON text; the first one of an id names the tool."""

    event: ClassVar = "tool_call_delta"
    id: str
    arguments_delta: str
    name: str | None = None


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A complete call. `signature` is opaque and is returned to the vendor with the call.

    `called_by` names the vendor's tool and the id of its call whose program made this one. `toolset` is the
    set of tools to which the tool belongs. `cache` belongs to calls that are replayed.
    """

    event: ClassVar = "tool_call"
    id: str
    name: str
    arguments: dict[str, Any]
    signature: str | None = None
    called_by: str | None = None
    cache: CacheHint | None = None
    toolset: str | None = None


class Notice(msgspec.Struct, frozen=True):
    """One line for the user; the stream continues."""

    event: ClassVar = "notice"
    code: str
    text: str


class PrefillProgress(msgspec.Struct, frozen=True):
    """Progress of the work of `stage`: `current` of `total`, in a unit of its own."""

    event: ClassVar = "progress"
    stage: str
    current: int
    total: int


class Done(msgspec.Struct, frozen=True):
    """The end of an answer: its reason, and the tokens of prompt and answer.

    `tool_path` tells how calls are obtained from this model. `tokens_in` counts the whole prompt,
    `tokens_cached` the part of it that the vendor had cached; `tokens_out` counts all generated tokens,
    `tokens_thinking` those of thoughts. None means not reported.
    """

    stop_reason: StopReason
    tokens_in: int
    tokens_out: int
    tool_path: ToolPath = "none"
    tokens_cached: int | None = None
    tokens_thinking: int | None = None


ContentFrame = (
    TextDelta
    | CitationEvent
    | ReasoningDelta
    | ReasoningBlock
    | ServerToolEvent
    | ToolCallDelta
    | ToolCall
    | Notice
    | PrefillProgress
)
Frame = ContentFrame | Done
Continued = TextDelta | ReasoningDelta | Notice | PrefillProgress
"""The frames of `llm.complete@1.0` before its last; a model with a protocol for chats may yield others."""


def to_event(frame: ContentFrame) -> tuple[str, dict[str, Any]]:
    """Return the event name and data of a frame other than the last.

    See: `stream_schema` of llm.chat@2.0.
    """
    content: msgspec.Struct = frame
    if isinstance(frame, CitationEvent):
        content = frame.citation
    elif isinstance(frame, ReasoningBlock | ServerToolEvent):
        content = frame.part
    return frame.event, msgspec.to_builtins(content)
