"""Parts of a message (llm.chat@2.0): text, media by reference or value, and thoughts.

A closed union, distinguished by `type`. None of them is a vendor's JSON: each field has one meaning for all
vendors (docs/vendors.md).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class CacheHint(msgspec.Struct, frozen=True, omit_defaults=True):
    """Mark of a prefix that will be sent again soon; `ttl` is the retention, such as 5m or 1h."""

    ttl: str | None = None


class Citation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The source of a piece of an answer.

    `quoted` are words of the source, `said` those of the answer. `start` and `end` count the unit of `kind`
    in the source: chars, pages, blocks; for kind web, characters of the answer. `index` is the source's place
    among the given ones. `reference` is opaque and is returned to the vendor.
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


class _Part(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """The encoding of all parts."""


class TextPart(_Part, frozen=True, tag="text"):
    """A piece of text of a message.

    `citations` are its sources. `signature` is opaque and is returned to the vendor with the text. `guard`: a
    guardrail examines this piece, in these roles, such as query or grounding_source.
    """

    text: str
    cache: CacheHint | None = None
    citations: list[Citation] | None = None
    signature: str | None = None
    guard: list[str] | None = None


class _Media(_Part, frozen=True):
    """Bytes of `media_type` from exactly one place.

    This is base64 `data`, a `url`, or a `file_id` at the vendor. `name` identifies it to the model and
    in a tool's result that refers to it. `signature` is as that of a text.
    """

    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    media_type: str | None = None
    cache: CacheHint | None = None
    name: str | None = None
    signature: str | None = None


class ImagePart(_Media, frozen=True, tag="image"):
    """An image; on the mesh given by the content hash of its blob.

    `detail` is the requested precision.
    """

    image_cid: str | None = None
    detail: str | None = None


class AudioPart(_Media, frozen=True, tag="audio"):
    """A recording."""


class VideoPart(_Media, frozen=True, tag="video"):
    """A video, or a section of it from `start` to `end` (such as 10s).

    It is sampled `fps` times a second, or as `processing` says in the vendor's own word. `detail` is as that
    of an image.
    """

    start: str | None = None
    end: str | None = None
    fps: float | None = None
    detail: str | None = None
    processing: str | None = None


class DocumentPart(_Media, frozen=True, tag="document"):
    """A document, such as a PDF.

    Instead of bytes it may be plain `text`, or `texts`: pieces that are cited separately. `context` describes
    it without being part of it. `citations` requests citations of it. `detail` is as that of an image.
    """

    text: str | None = None
    texts: list[TextPart] | None = None
    context: str | None = None
    citations: bool | None = None
    detail: str | None = None


class ThinkingPart(_Part, frozen=True, tag="thinking"):
    """A thought of the model, to be returned to it unchanged.

    `signature` and `data` (thoughts that only the vendor can read) are opaque. `kind` None is plain text;
    `id`, `format` and `index` are kept if the vendor gave them, and so is `closed`: whether the thought is
    complete.
    """

    text: str | None = None
    signature: str | None = None
    data: str | None = None
    kind: Literal["text", "summary", "encrypted"] | None = None
    id: str | None = None
    format: str | None = None
    index: int | None = None
    closed: bool | None = None


class RefusalPart(_Part, frozen=True, tag="refusal"):
    """The model's text of a refusal to answer."""

    text: str


class JsonPart(_Part, frozen=True, tag="json"):
    """A tool's result as a value instead of a text."""

    value: Any


class SearchResultPart(_Part, frozen=True, tag="search_result"):
    """A search result from `source`, to be cited."""

    source: str
    title: str
    texts: list[TextPart]
    citations: bool | None = None
    cache: CacheHint | None = None


class ToolReferencePart(_Part, frozen=True, tag="tool_reference"):
    """A tool found by a search for tools; the model knows it from here on."""

    name: str
    cache: CacheHint | None = None


class UploadPart(_Part, frozen=True, tag="upload"):
    """A file at the vendor, placed where the vendor's tools can read it."""

    file_id: str
    cache: CacheHint | None = None


class CallPart(_Part, frozen=True, tag="call"):
    """The position of the call `id` of `tool_calls` among the parts; the default is last."""

    id: str


class ServerCallPart(_Part, frozen=True, tag="server_call"):
    """The model's call of a tool that its vendor runs; `server` is the tool's MCP server.

    `called_by` names the vendor's tool and the id of its call whose program made this one. `signature` is
    opaque.
    """

    name: str
    id: str | None = None
    arguments: dict[str, Any] | None = None
    server: str | None = None
    called_by: str | None = None
    signature: str | None = None
    cache: CacheHint | None = None


class ServerResultPart(_Part, frozen=True, tag="server_result"):
    """The result of a tool that the vendor runs, to be returned unchanged."""

    name: str
    id: str | None = None
    result: Any = None
    is_error: bool | None = None
    called_by: str | None = None
    signature: str | None = None
    cache: CacheHint | None = None


class ToolChangePart(_Part, frozen=True, tag="tool_change"):
    """Permission or prohibition of a tool from here on.

    It concerns the tool `name`, of the MCP `server` if one is given; without a name, all tools of that
    server.
    """

    change: Literal["added", "removed"]
    name: str | None = None
    server: str | None = None
    cache: CacheHint | None = None


class SummaryPart(_Part, frozen=True, tag="summary"):
    """The vendor's summary of the conversation before it, to be returned unchanged.

    `text` None: no summary resulted. `data` and `signature` are opaque. `changes` are those of the tools in
    the summarised part.
    """

    text: str | None = None
    data: str | None = None
    signature: str | None = None
    changes: list[ToolChangePart] | None = None
    cache: CacheHint | None = None


class ModelChangePart(_Part, frozen=True, tag="model_change"):
    """From here on the vendor answers with the model `after`, for a `reason` of a `category`.

    An example of a reason is refusal.
    """

    before: str
    after: str
    reason: str | None = None
    category: str | None = None


class ListedTool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool of an MCP server, as described by that server."""

    name: str
    description: str | None = None
    parameters_schema: dict[str, Any] | None = None


class ToolListingPart(_Part, frozen=True, tag="tool_listing"):
    """The tools listed by an MCP `server`, to be returned unchanged."""

    server: str
    tools: list[ListedTool]


ServerPart = ServerCallPart | ServerResultPart | SummaryPart | ModelChangePart | ToolListingPart
"""Parts that the vendor requires in later requests, in their position."""
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
    | ToolChangePart
    | ServerPart
)
