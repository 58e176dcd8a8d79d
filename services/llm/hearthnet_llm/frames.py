"""What comes from a model: a closed union, in the order in which it happens.

Any number of `Token`, `Cited`, `Thinking`, `Thought`, `Served`, `ToolCallDelta`, `ToolCall`, `Notice` and
`Progress`, then exactly one `Done`. A `ToolCall` is complete and its arguments are parsed; `Thinking`, deltas
and progress are for display. A `Thought` and what is `Served` are complete too: some vendors want them back
with the next turn. A failure is no frame but a `HearthNetError`.

See: docs/capabilities.md#llmchat20.
"""

from __future__ import annotations

from typing import Any, Literal, assert_never

import msgspec

from hearthnet_llm.parts import CacheHint, Citation, ServerPart, ThinkingPart

StopReason = Literal["end", "max_tokens", "stop_sequence", "cancelled", "tool_calls", "refusal"]
ToolPath = Literal["native", "grammar", "text", "none"]


class Token(msgspec.Struct, frozen=True):
    """The next piece of text; always whole characters."""

    text: str


class Cited(msgspec.Struct, frozen=True):
    """Where the text just before comes from."""

    citation: Citation


class Thinking(msgspec.Struct, frozen=True):
    """The next piece of what the model thinks aloud."""

    text: str


class Thought(msgspec.Struct, frozen=True):
    """One complete thought, for the assistant message that hands it back."""

    part: ThinkingPart


class Served(msgspec.Struct, frozen=True):
    """A call of a tool that the vendor runs, or its result, for the assistant message that hands it back."""

    part: ServerPart


class ToolCallDelta(msgspec.Struct, frozen=True):
    """A piece of a call's arguments as JSON text; the first one of an id names the tool."""

    id: str
    arguments_delta: str
    name: str | None = None


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A complete call. `signature` is opaque: the vendor wants it back with the call.

    `called_by`: the vendor's tool and the id of its call whose program made this one. `toolset`: the set of
    tools that it is of. `cache` belongs to calls that are replayed.
    """

    id: str
    name: str
    arguments: dict[str, Any]
    signature: str | None = None
    called_by: str | None = None
    cache: CacheHint | None = None
    toolset: str | None = None


class Notice(msgspec.Struct, frozen=True):
    """One line that a person should read; the stream goes on."""

    code: str
    text: str


class Progress(msgspec.Struct, frozen=True):
    """How far the work of `stage` is: `current` of `total`, in a unit of its own."""

    stage: str
    current: int
    total: int


class Done(msgspec.Struct, frozen=True):
    """The end: why, and the tokens of prompt and answer. `tool_path` says how calls are obtained from this
    model.

    `tokens_in` is the whole prompt, `tokens_cached` the part of it that the vendor had kept; `tokens_out` is
    all that was generated, `tokens_thinking` the part of it that was thought. None: not told.
    """

    stop_reason: StopReason
    tokens_in: int
    tokens_out: int
    tool_path: ToolPath = "none"
    tokens_cached: int | None = None
    tokens_thinking: int | None = None


Shown = Token | Cited | Thinking | Thought | Served | ToolCallDelta | ToolCall | Notice | Progress
Frame = Shown | Done
Continued = Token | Thinking | Notice | Progress
"""The frames of `llm.complete@1.0` before its last; a model of another wire may give more."""


def to_event(frame: Shown) -> tuple[str, dict[str, Any]]:
    """The event name and data of a frame that is not the last (llm.chat@2.0, `stream_schema`)."""
    match frame:
        case Token(text):
            return "token", {"text": text}
        case Cited(citation):
            return "citation", msgspec.to_builtins(citation)
        case Served(part):
            return "served", msgspec.to_builtins(part)
        case Thinking(text):
            return "thinking", {"text": text}
        case Thought(part):
            return "thought", {**msgspec.to_builtins(part), "type": "thinking"}
        case ToolCallDelta(call_id, delta, name):
            named = {} if name is None else {"name": name}
            return "tool_call_delta", {"id": call_id, "arguments_delta": delta, **named}
        case ToolCall():
            return "tool_call", msgspec.to_builtins(frame)
        case Notice(code, text):
            return "notice", {"code": code, "text": text}
        case Progress(stage, current, total):
            return "progress", {"stage": stage, "current": current, "total": total}
        case _:
            assert_never(frame)
