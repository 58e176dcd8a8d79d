"""What a model is asked: the input of llm.chat@2.0 and llm.complete@1.0 as types.

See: docs/capabilities.md#llmchat20, docs/capabilities.md#llmcomplete10.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from hearthnet_llm.frames import ToolCall
from hearthnet_llm.parts import CacheHint, ImagePart, ListedTool, Part, TextPart, ThinkingPart


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One turn.

    `tool_calls` and `thinking` (what went before the content) belong to an assistant's message,
    `tool_call_id` and `is_error` to a tool's, whose `name` is the tool's. Content None: nothing was said, as
    when a model only calls tools. `prefix`: the answer continues this message. `refusal`: the words for not
    answering, where the vendor keeps them apart. `turn`: whether the message is part of the turn of the one
    before, where vendors have turns of several; None: results of tools and what the user says next are one.
    `effort` and `shown` belong to a system's message: how hard to think from here on, and until when the
    model sees it.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    tool_calls: list[ToolCall] = []
    tool_call_id: str | None = None
    is_error: bool | None = None
    name: str | None = None
    thinking: list[ThinkingPart] | None = None
    refusal: str | None = None
    prefix: bool | None = None
    turn: Literal["same", "new"] | None = None
    cache: CacheHint | None = None
    effort: str | None = None
    shown: str | None = None

    @property
    def text(self) -> str:
        """The text of the message, without anything else in it."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content or () if isinstance(part, TextPart))

    @property
    def has_images(self) -> bool:
        """Whether a part of the message is an image."""
        return not isinstance(self.content, str) and any(
            isinstance(part, ImagePart) for part in self.content or ()
        )


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """Roughly where the user is; `country` has two letters, `timezone` is an IANA name, `latitude` and
    `longitude` are degrees. `language`: what they read, such as en_US.
    """

    city: str | None = None
    region: str | None = None
    country: str | None = None
    timezone: str | None = None
    latitude: float | None = None
    longitude: float | None = None
    language: str | None = None


class Screen(msgspec.Struct, frozen=True, omit_defaults=True):
    """A screen that the model works at, in pixels; `number` is its X11 display, `zoom` whether the model may
    look at a part of it more closely.
    """

    width: int
    height: int
    number: int | None = None
    zoom: bool | None = None


class Member(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of a set of tools: whether it may be used, and is seen only once it was searched for."""

    enabled: bool | None = None
    deferred: bool | None = None


class Opened(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which URLs out of one place may be opened: those of `tools` alone, or of all others."""

    which: Literal["all", "none", "only", "except"]
    tools: list[str] | None = None


class ServerTool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool that the vendor defines, and mostly runs itself, such as web_search; `version` is its own.

    `sources`: what it may search. `environment`: what it works in, such as a browser. `model`: the one it
    asks, whose prompt `prompt_cache` keeps, and which sees the conversation if there is a `transcript`.
    `inclusion`: how much of what it found comes with the answer.
    `opens`: the URLs it may open, by where they come from. Of a set of tools, `usual` is what holds for all,
    `members` what differs for single ones, and `listed` the tools, where the vendor need not ask for them.
    `since` and `until`: the time of what it may find (RFC 3339). `finds`: what kinds of things. `threshold`:
    how likely it must be that a search helps, 0 to 1. `widget`: whether a map comes with what it found.
    """

    kind: str
    version: str | None = None
    context_size: str | None = None
    max_uses: int | None = None
    max_results: int | None = None
    max_tokens: int | None = None
    max_characters: int | None = None
    allowed_domains: list[str] | None = None
    blocked_domains: list[str] | None = None
    sources: list[str] | None = None
    filter: str | None = None
    place: Place | None = None
    screen: Screen | None = None
    environment: str | None = None
    excluded: list[str] | None = None
    citations: bool | None = None
    model: str | None = None
    prompt_cache: CacheHint | None = None
    use_cache: bool | None = None
    inclusion: str | None = None
    opens: dict[str, Opened] | None = None
    usual: Member | None = None
    members: dict[str, Member] | None = None
    listed: list[ListedTool] | None = None
    transcript: bool | None = None
    since: str | None = None
    until: str | None = None
    finds: list[str] | None = None
    threshold: float | None = None
    widget: bool | None = None


class TextForm(msgspec.Struct, frozen=True, omit_defaults=True):
    """The form of a text: `definition` is its grammar in `syntax`, such as gbnf, lark or regex.

    `syntax` text is any text; None: not said.
    """

    syntax: str | None = None
    definition: str | None = None


_TEXT_INPUT: Final = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


class Tool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool the model may call; `parameters_schema` is JSON Schema, None where it takes no arguments.
    `result_schema` is that of what it gives back, where it is known.

    `strict`: the vendor is asked to hold the model to the schema. `server`: nobody here runs it. `deferred`:
    the model sees it only once a search for tools has found it. `examples`: arguments as they might be.
    `callers`: who may call it: "direct" for the model itself, and tools of the vendor by its name for them.
    `eager`: arguments come piece by piece before they are whole and checked. `text`: it is called with one
    text of this form, the argument `input`, and has no schema.
    """

    name: str
    description: str | None = None
    parameters_schema: dict[str, Any] | None = None
    strict: bool | None = None
    cache: CacheHint | None = None
    server: ServerTool | None = None
    deferred: bool | None = None
    examples: list[dict[str, Any]] | None = None
    callers: list[str] | None = None
    result_schema: dict[str, Any] | None = None
    eager: bool | None = None
    text: TextForm | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of the arguments."""
        if self.text is not None:
            return dict(_TEXT_INPUT)
        return {"type": "object"} if self.parameters_schema is None else self.parameters_schema


class Named(msgspec.Struct, frozen=True, omit_defaults=True):
    """The tool choice that demands one tool, or one of several; not `required`: only those may be called."""

    name: str
    others: list[str] = []
    required: bool = True


class ResponseSchema(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer must be JSON that fits `schema`; None: any JSON object."""

    name: str | None = None
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class Thinking(msgspec.Struct, frozen=True, omit_defaults=True):
    """How much to think before the answer; None leaves it to the vendor.

    `effort` is a word such as low or high, `budget_tokens` the most to spend on it. `show`: how the thoughts
    come back. `keep`: whether those of earlier turns still count. `mismatched`: what becomes of one that is
    handed back where it was not thought.
    """

    mode: Literal["on", "off", "auto", "between_calls"] | None = None
    effort: str | None = None
    budget_tokens: int | None = None
    show: str | None = None
    keep: bool | None = None
    mismatched: Literal["error", "drop"] | None = None


ToolChoice = Literal["auto", "none", "required"] | Named


class ModelParams(msgspec.Struct, frozen=True):
    """Which model: its name, the context in tokens and the modalities it must have. None: whichever there
    is.
    """

    model: str | None = None
    ctx: int | None = None
    modalities: list[Literal["text", "vision"]] | None = None


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The input of llm.chat@2.0. None: not said, and said to no vendor that does not demand it.

    `grammar` is the form of an answer that is no JSON. `thread_id` and `thread_length` are the service's
    (threads/); no model gets to see them. `task_tokens` are
    for all answers and calls of one task.
    """

    messages: list[Message]
    thread_id: str | None = None
    thread_length: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    stop: list[str] | None = None
    seed: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_schema: ResponseSchema | None = None
    grammar: TextForm | None = None
    thinking: Thinking | None = None
    verbosity: str | None = None
    service_tier: str | None = None
    task_tokens: int | None = None
    task_tokens_left: int | None = None
    show_server_tools: bool | None = None
    cache: CacheHint | None = None
    cache_key: str | None = None
    cache_ttl: str | None = None
    stream: bool | None = None


class CompleteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The input of llm.complete@1.0. None: not said."""

    prompt: str
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: list[str] = []
    seed: int | None = None
    stream: bool = True
