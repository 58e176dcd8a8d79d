"""What a message is made of: text, media by reference or value, and what the model thought (llm.chat@2.0).

A closed union, told apart by `type`. Nothing here is any vendor's JSON: each field has one meaning, whoever
serves the model (docs/vendors.md).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class CacheHint(msgspec.Struct, frozen=True, omit_defaults=True):
    """All up to here is asked again soon; `ttl` is how long the vendor should keep it, such as 5m or 1h."""

    ttl: str | None = None


class Citation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a piece of an answer comes from.

    `quoted` are words of the source, `said` those of the answer. `start` and `end` count in the source what
    `kind` names: chars, pages, blocks; of kind web, in the answer's characters. `index` is the source's place
    among those that were given. `reference` is opaque: the vendor wants it back.
    """

    kind: Literal["chars", "pages", "blocks", "web", "search_result", "file"]
    quoted: str | None = None
    said: str | None = None
    title: str | None = None
    url: str | None = None
    file_id: str | None = None
    index: int | None = None
    start: int | None = None
    end: int | None = None
    reference: str | None = None


class TextPart(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="text"):
    """A piece of text of a message.

    `citations`: where it comes from. `signature` is opaque: the vendor wants it back with the text. `guard`:
    a guardrail looks at this piece, in these parts, such as query or grounding_source.
    """

    text: str
    cache: CacheHint | None = None
    citations: list[Citation] | None = None
    signature: str | None = None
    guard: list[str] | None = None


class _Media(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """Bytes of `media_type` from exactly one place: base64 `data`, a `url`, or a `file_id` at the vendor."""

    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    media_type: str | None = None
    cache: CacheHint | None = None


class ImagePart(_Media, frozen=True, omit_defaults=True, tag="image"):
    """An image; on the mesh by the content hash of its blob. `detail`: how closely to look. `name`: what it
    is called in a tool's result that refers to it. `signature` as that of a text.
    """

    image_cid: str | None = None
    detail: str | None = None
    name: str | None = None
    signature: str | None = None


class AudioPart(_Media, frozen=True, omit_defaults=True, tag="audio"):
    """A recording; `name` and `signature` as those of an image."""

    name: str | None = None
    signature: str | None = None


class VideoPart(_Media, frozen=True, omit_defaults=True, tag="video"):
    """A film: from `start` to `end` (such as 10s), looked at `fps` times a second, or as `processing` says in
    the vendor's word. `detail`, `name` and `signature` as those of an image.
    """

    start: str | None = None
    end: str | None = None
    fps: float | None = None
    detail: str | None = None
    processing: str | None = None
    name: str | None = None
    signature: str | None = None


class DocumentPart(_Media, frozen=True, omit_defaults=True, tag="document"):
    """A document, such as a PDF; `name` is what the model calls it.

    Instead of bytes it may be plain `text`, or `texts`: pieces that are cited one by one. `context`: about
    it, not part of it. `citations`: whether the answer is to say where in it something stands. `detail` and
    `signature` as those of an image.
    """

    name: str | None = None
    text: str | None = None
    texts: list[TextPart] | None = None
    context: str | None = None
    citations: bool | None = None
    detail: str | None = None
    signature: str | None = None


class ThinkingPart(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="thinking"):
    """What the model thought, to be handed back to it unchanged.

    `signature` and `data` (thoughts that only the vendor can read) are opaque. `kind` None is plain text;
    `id`, `format` and `index` are kept where the vendor gave them, and `closed`: whether it came to its end.
    """

    text: str | None = None
    signature: str | None = None
    data: str | None = None
    kind: Literal["text", "summary", "encrypted"] | None = None
    id: str | None = None
    format: str | None = None
    index: int | None = None
    closed: bool | None = None


class RefusalPart(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="refusal"):
    """The model's words for not answering."""

    text: str


class JsonPart(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="json"):
    """A tool's result as a value instead of a text."""

    value: Any


class SearchResultPart(
    msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="search_result"
):
    """Something that was found at `source`, to be cited."""

    source: str
    title: str
    texts: list[TextPart]
    citations: bool | None = None
    cache: CacheHint | None = None


class ToolReferencePart(
    msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="tool_reference"
):
    """A tool that a search for tools found: from here on the model knows it."""

    name: str
    cache: CacheHint | None = None


class UploadPart(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="upload"):
    """A file at the vendor, put where its own tools can read it."""

    file_id: str
    cache: CacheHint | None = None


class CallPart(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="call"):
    """The place of the call `id` of `tool_calls` among the parts; without it, calls come last."""

    id: str


class ServerCallPart(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="server_call"):
    """The model called a tool that its vendor runs; nobody here answers. `server`: the MCP server it is of.

    `called_by`: the vendor's tool and the id of its call whose program made this one. `signature` is opaque.
    """

    name: str
    id: str | None = None
    arguments: dict[str, Any] | None = None
    server: str | None = None
    called_by: str | None = None
    signature: str | None = None
    cache: CacheHint | None = None


class ServerResultPart(
    msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="server_result"
):
    """What such a tool gave back: data of that tool, to be handed back unchanged."""

    name: str
    id: str | None = None
    result: Any = None
    is_error: bool | None = None
    called_by: str | None = None
    signature: str | None = None
    cache: CacheHint | None = None


class ToolChangePart(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="tool_change"):
    """From here on the model may call a tool, or may not: the one of `name`, of the MCP `server` where one is
    named; without a name, all of that server.
    """

    change: Literal["added", "removed"]
    name: str | None = None
    server: str | None = None
    cache: CacheHint | None = None


class SummaryPart(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="summary"):
    """What the vendor made of the conversation before it, to be handed back unchanged.

    `text` None: it came to none. `data` and `signature` are opaque. `changes`: those of the tools meanwhile.
    """

    text: str | None = None
    data: str | None = None
    signature: str | None = None
    changes: list[ToolChangePart] | None = None
    cache: CacheHint | None = None


class ModelChangePart(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="model_change"):
    """The vendor let the model `after` answer from here on, for a `reason` such as refusal, of a
    `category`.
    """

    before: str
    after: str
    reason: str | None = None
    category: str | None = None


class ListedTool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool of an MCP server, as that describes it."""

    name: str
    description: str | None = None
    parameters_schema: dict[str, Any] | None = None


class ToolListingPart(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="tool_listing"):
    """The tools that an MCP `server` said it has, to be handed back unchanged."""

    server: str
    tools: list[ListedTool]


ServerPart = ServerCallPart | ServerResultPart | SummaryPart | ModelChangePart | ToolListingPart
"""What the vendor wants back with the message, in its place."""
Part = (
    TextPart
    | ImagePart
    | AudioPart
    | VideoPart
    | DocumentPart
    | ThinkingPart
    | RefusalPart
    | JsonPart
    | SearchResultPart
    | ToolReferencePart
    | UploadPart
    | CallPart
    | ServerCallPart
    | ServerResultPart
    | ToolChangePart
    | SummaryPart
    | ModelChangePart
    | ToolListingPart
)
