"""What a model is asked: the input of llm.chat@2.0 and llm.complete@1.0 as types (capabilities.md, "llm")."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from hearthnet_llm.frames import ToolCall


class TextPart(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """A piece of text of a message."""

    text: str


class ImagePart(msgspec.Struct, frozen=True, tag_field="type", tag="image"):
    """An image of a message, by the content hash of its blob."""

    image_cid: str


class Message(msgspec.Struct, frozen=True):
    """One turn. `tool_calls` belongs to an assistant's, `tool_call_id` and `is_error` to a tool's."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[TextPart | ImagePart] = ""
    tool_calls: list[ToolCall] = []
    tool_call_id: str | None = None
    is_error: bool = False

    @property
    def text(self) -> str:
        """The text of the message without its images."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def has_images(self) -> bool:
        """Whether a part of the message is an image."""
        return not isinstance(self.content, str) and any(isinstance(part, ImagePart) for part in self.content)


class Tool(msgspec.Struct, frozen=True):
    """A tool the model may call; `parameters_schema` is JSON Schema."""

    name: str
    description: str
    parameters_schema: dict[str, Any]


class Named(msgspec.Struct, frozen=True):
    """The tool choice that demands one tool."""

    name: str


class ResponseSchema(msgspec.Struct, frozen=True):
    """The answer must be JSON that fits `schema`."""

    name: str
    schema: dict[str, Any]


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


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The input of llm.chat@2.0."""

    messages: list[Message]
    max_tokens: int = 1024
    temperature: float = 0.7
    top_p: float = 0.95
    stop: list[str] = []
    seed: int | None = None
    tools: list[Tool] = []
    tool_choice: ToolChoice = "auto"
    response_schema: ResponseSchema | None = None
    stream: bool = True

    @property
    def sampling(self) -> Sampling:
        """How the answer is drawn."""
        return Sampling(self.max_tokens, self.temperature, self.top_p, self.stop, self.seed)


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
