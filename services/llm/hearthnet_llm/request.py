"""What a model is asked: the input of llm.chat@2.0 and llm.complete@1.0 as types (capabilities.md, "llm")."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from hearthnet_llm.frames import ToolCall
from hearthnet_llm.parts import CacheHint, ImagePart, Part, TextPart, ThinkingPart


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One turn.

    `tool_calls` and `thinking` (what went before the content) belong to an assistant's message,
    `tool_call_id` and `is_error` to a tool's, whose `name` is the tool's. Content None: nothing was said, as
    when a model only calls tools. `prefix`: the answer continues this message. `refusal`: the words for not
    answering, where the vendor keeps them apart. `turn`: whether the message is part of the turn of the one
    before, where vendors have turns of several; None: results of tools and what the user says next are one.
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
    """Roughly where the user is; `country` has two letters, `timezone` is an IANA name."""

    city: str | None = None
    region: str | None = None
    country: str | None = None
    timezone: str | None = None


class Screen(msgspec.Struct, frozen=True, omit_defaults=True):
    """A screen that the model works at, in pixels; `number` is its X11 display."""

    width: int
    height: int
    number: int | None = None


class ServerTool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool that the vendor defines, and mostly runs itself, such as web_search; `version` is its own.

    `sources`: what it may search. `environment`: what it works in, such as a browser.
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


class Tool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool the model may call; `parameters_schema` is JSON Schema, None where it takes no arguments.
    `result_schema` is that of what it gives back, where it is known.

    `strict`: the vendor is asked to hold the model to the schema. `server`: nobody here runs it. `deferred`:
    the model sees it only once a search for tools has found it. `examples`: arguments as they might be.
    `callers`: who may call it: "direct" for the model itself, and tools of the vendor by its name for them.
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

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of the arguments."""
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
    come back. `keep`: whether those of earlier turns still count.
    """

    mode: Literal["on", "off", "auto"] | None = None
    effort: str | None = None
    budget_tokens: int | None = None
    show: str | None = None
    keep: bool | None = None


ToolChoice = Literal["auto", "none", "required"] | Named


class ModelParams(msgspec.Struct, frozen=True):
    """Which model: its name, the context in tokens and the modalities it must have. None: whichever there
    is.
    """

    model: str | None = None
    ctx: int | None = None
    modalities: list[Literal["text", "vision"]] | None = None


class Sampling(msgspec.Struct, frozen=True):
    """How tokens are drawn and where the text ends. `max_tokens` counts what is generated."""

    max_tokens: int
    temperature: float
    top_p: float
    stop: list[str]
    seed: int | None


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The input of llm.chat@2.0. None: not said; a service call has the contract's defaults filled in.

    `thread_id` and `thread_length` are the service's (threads/); no model gets to see them.
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
    thinking: Thinking | None = None
    verbosity: str | None = None
    service_tier: str | None = None
    show_server_tools: bool | None = None
    cache: CacheHint | None = None
    cache_key: str | None = None
    cache_ttl: str | None = None
    stream: bool | None = None

    @property
    def sampling(self) -> Sampling:
        """How the answer is drawn, with the contract's defaults."""
        return Sampling(
            1024 if self.max_tokens is None else self.max_tokens,
            0.7 if self.temperature is None else self.temperature,
            0.95 if self.top_p is None else self.top_p,
            self.stop or [],
            self.seed,
        )


class CompleteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The input of llm.complete@1.0."""

    prompt: str
    max_tokens: int = 256
    temperature: float = 0.7
    top_p: float = 0.95
    stop: list[str] = []
    seed: int | None = None
    stream: bool = True

    @property
    def sampling(self) -> Sampling:
        """How the text is drawn."""
        return Sampling(self.max_tokens, self.temperature, self.top_p, self.stop, self.seed)
