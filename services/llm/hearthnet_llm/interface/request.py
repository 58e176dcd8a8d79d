"""Types of the inputs of llm.chat@2.0 and llm.complete@1.0.

See: docs/capabilities.md#llmchat20, docs/capabilities.md#llmcomplete10.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from hearthnet_llm.interface.content_parts import (
    CacheHint,
    ImagePart,
    ListedTool,
    Part,
    TextPart,
    ThinkingPart,
)
from hearthnet_llm.interface.frames import ToolCall


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a conversation.

    `tool_calls` and `thinking` (thoughts before the content) belong to an assistant's message, `tool_call_id`
    and `is_error` to a tool's, whose `name` is the tool's. Content None: no content, as when a model only
    calls tools. `prefix`: the answer continues this message. `refusal`: the text of a refusal, if the vendor
    separates it. `turn`: whether the message belongs to the turn of the one before, for vendors whose turns
    have several messages; None: results of tools and the user's next message are one turn. `effort` and
    `shown` belong to a system's message: the thinking effort from here on, and until when the model sees the
    message.
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
        """The text parts of the content."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content or () if isinstance(part, TextPart))

    @property
    def images(self) -> list[ImagePart]:
        """The images among the parts of the content."""
        parts = self.content if isinstance(self.content, list) else []
        return [part for part in parts if isinstance(part, ImagePart)]


class Region(msgspec.Struct, frozen=True, omit_defaults=True):
    """The approximate place of the user.

    `country` has two letters, `timezone` is an IANA name, `latitude` and `longitude` are degrees. `language`
    is the user's, such as en_US.
    """

    city: str | None = None
    region: str | None = None
    country: str | None = None
    timezone: str | None = None
    latitude: float | None = None
    longitude: float | None = None
    language: str | None = None


class Screen(msgspec.Struct, frozen=True, omit_defaults=True):
    """A screen that the model operates, in pixels.

    `number` is its X11 display; `zoom` permits the model to enlarge a part of it.
    """

    width: int
    height: int
    number: int | None = None
    zoom: bool | None = None


class Member(msgspec.Struct, frozen=True, omit_defaults=True):
    """Settings of one tool of a set.

    `enabled` permits it; `deferred` hides it until a search for tools finds it.
    """

    enabled: bool | None = None
    deferred: bool | None = None


class Opened(msgspec.Struct, frozen=True, omit_defaults=True):
    """Permission to open URLs from one kind of source.

    `only` permits those of `tools`, `except` those of all others.
    """

    which: Literal["all", "none", "only", "except"]
    tools: list[str] | None = None


class ServerTool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool that the vendor defines, and mostly runs itself, such as web_search.

    `version` is the vendor's. `sources`: the sources to search. `environment`: its environment, such as a
    browser. `model`: the model that it uses, whose prompt `prompt_cache` caches, and which sees the
    conversation if there is a `transcript`. `inclusion`: how much of the result comes with the answer.
    `opens`: the URLs it may open, by their source. Of a set of tools, `usual` holds for all, `members` for
    single ones, and `listed` has the tools for vendors that need not fetch the list. `since` and `until`: the
    time range of results (RFC 3339). `finds`: kinds of results. `threshold`: minimal probability that a
    search helps, 0 to 1. `widget`: whether a map comes with the result.
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
    place: Region | None = None
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
    """The form of a text: a grammar, `definition`, in `syntax` (such as gbnf, lark or regex).

    `syntax` text is any text; None is unspecified.
    """

    syntax: str | None = None
    definition: str | None = None


_TEXT_INPUT: Final = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


class Tool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool that the model may call.

    `parameters_schema` is JSON Schema, None for a tool without arguments. `result_schema` is that of its
    result, if known. `strict`: the vendor is to enforce the schema. `server`: the vendor runs the tool.
    `deferred`: hidden from the model until a search for tools finds it. `examples`: sample arguments.
    `callers`: permitted callers, "direct" for the model itself, and tools of the vendor by its own names.
    `eager`: arguments are streamed before they are complete and checked. `text`: it is called with one text
    of this form, the argument `input`, and has no schema.
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
    """The tool choice that demands one tool, or one of several.

    Without `required`, only those may be called, but none must be.
    """

    name: str
    others: list[str] = []
    required: bool = True


class ResponseSchema(msgspec.Struct, frozen=True, omit_defaults=True):
    """Required form of an answer: JSON that fits `schema`; None is any JSON object."""

    name: str | None = None
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class Thinking(msgspec.Struct, frozen=True, omit_defaults=True):
    """Amount and form of thinking before the answer; None leaves it to the vendor.

    `effort` is a word such as low or high, `budget_tokens` the limit. `show`: the form in which thoughts are
    returned. `keep`: whether thoughts of earlier turns still count. `mismatched`: the treatment of a thought
    that is sent to another model than its own.
    """

    mode: Literal["on", "off", "auto", "between_calls"] | None = None
    effort: str | None = None
    budget_tokens: int | None = None
    show: str | None = None
    keep: bool | None = None
    mismatched: Literal["error", "drop"] | None = None


ToolChoice = Literal["auto", "none", "required"] | Named


class ModelParams(msgspec.Struct, frozen=True):
    """Conditions on the model: name, context in tokens, and modalities; None is no condition."""

    model: str | None = None
    ctx: int | None = None
    modalities: list[Literal["text", "vision"]] | None = None


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The input of llm.chat@2.0.

    None is unspecified, and is sent only to vendors that require a value. `grammar` is the form of an answer
    other than JSON. `thread_id` and `thread_length` are handled by the service (threads/) and never sent to a
    model. `task_tokens` is the limit for all answers and calls of one task.
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

    @property
    def demands_tool(self) -> bool:
        """True if the answer must be a call, of any or of named tools."""
        choice = self.tool_choice
        return choice == "required" or (isinstance(choice, Named) and choice.required)


class CompleteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The input of llm.complete@1.0; None is unspecified."""

    prompt: str
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: list[str] = []
    seed: int | None = None
    stream: bool = True
