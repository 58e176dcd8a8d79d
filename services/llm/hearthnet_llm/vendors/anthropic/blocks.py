"""Content blocks of Anthropic Messages: one small writer and one small reader a kind.

Each kind of citation has fields of its own.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final

import msgspec

from hearthnet_llm.interface.content_parts import (
    CacheHint,
    CallPart,
    Citation,
    DocumentPart,
    ImagePart,
    JsonPart,
    ModelChangePart,
    Part,
    RefusalPart,
    SearchResultPart,
    ServerCallPart,
    ServerResultPart,
    SummaryPart,
    TextPart,
    ThinkingPart,
    ToolChangePart,
    ToolListingPart,
    ToolReferencePart,
    UploadPart,
)
from hearthnet_llm.interface.frames import ToolCall
from hearthnet_llm.vendors.anthropic import opaque_blocks
from hearthnet_llm.vendors.calls import plain_id
from hearthnet_llm.vendors.json_access import as_text, fields, objects, refuse, text, without_nones
from hearthnet_llm.vendors.wire import Json

_RESULT: Final = "_tool_result"
_MCP: Final = "mcp"

_PDF: Final = "application/pdf"
_PLAIN: Final = "text/plain"
_COMMON: Final = {"quoted": "cited_text", "file_id": "file_id"}
_DOCUMENT: Final = {**_COMMON, "index": "document_index", "title": "document_title"}
_KINDS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "chars": ("char_location", {**_DOCUMENT, "start": "start_char_index", "end": "end_char_index"}),
    "pages": ("page_location", {**_DOCUMENT, "start": "start_page_number", "end": "end_page_number"}),
    "blocks": (
        "content_block_location",
        {**_DOCUMENT, "start": "start_block_index", "end": "end_block_index"},
    ),
    "web": (
        "web_search_result_location",
        {**_COMMON, "title": "title", "url": "url", "reference": "encrypted_index"},
    ),
    "search_result": (
        "search_result_location",
        {
            **_COMMON,
            "title": "title",
            "url": "source",
            "index": "search_result_index",
            "start": "start_block_index",
            "end": "end_block_index",
        },
    ),
}
_TITLES: Final = ("title", "document_title")
"""Fields that are null if unknown, and never absent."""
_OPTIONAL: Final = ("file_id", *_TITLES)
_BY_TYPE: Final = {kind: (ours, fields) for ours, (kind, fields) in _KINDS.items()}


def write(part: Part, calls: dict[str, ToolCall]) -> Json:
    """Return the block of a part; `calls` has the message's calls by id.

    Raises:
        HearthNetError: `bad_request` for a part that this vendor does not support.
    """
    if isinstance(part, CallPart):
        return _call(calls[part.id])
    writer = _WRITERS.get(type(part))
    if writer is None:
        refuse("/input/messages", f"Anthropic takes no {part.__struct_config__.tag}")
    block: Json = writer(part)
    return {**block, **cached(getattr(part, "cache", None))}


def read(block: Json, where: str) -> Part:
    """Return the part of a block that is neither a call nor a result."""
    kind = text(block.get("type"), f"{where}.type")
    reader = _READERS.get(kind) or (_read_served if kind.endswith(_RESULT) else None)
    if reader is None:
        refuse(where, f"no block {kind!r} is known")
    part = reader(block)
    if isinstance(part, SummaryPart | ToolChangePart):
        return msgspec.structs.replace(part, cache=hint(block))
    return part


def read_call(block: Json, where: str) -> ToolCall:
    """Return the call of a tool_use block."""
    return ToolCall(
        text(block.get("id"), f"{where}.id"),
        text(block.get("name"), f"{where}.name"),
        fields(block.get("input"), f"{where}.input"),
        called_by=caller(block.get("caller")),
        cache=hint(block),
        toolset=block.get("toolset_name"),
    )


def cached(cache: CacheHint | None) -> Json:
    """Return the field of a cache hint, or nothing."""
    if cache is None:
        return {}
    return {"cache_control": ephemeral(cache)}


def ephemeral(cache: CacheHint) -> Json:
    """Return a native cache hint."""
    return {"type": "ephemeral", **without_nones(ttl=cache.ttl)}


def hint(native: Json) -> CacheHint | None:
    """Return the cache hint of a block, a tool or a request, or None."""
    found = native.get("cache_control")
    return None if found is None else CacheHint(fields(found, "cache_control").get("ttl"))


def caller(native: Any) -> str | None:
    """Return the maker of a call: "direct" for the model, else the vendor's tool and call id."""
    if native is None:
        return None
    found = fields(native, "caller")
    kind = text(found.get("type"), "caller.type")
    return f"{kind}/{found['tool_id']}" if "tool_id" in found else kind


def _called_by(made_by: str | None) -> Json:
    if made_by is None:
        return {}
    kind, _, call = made_by.partition("/")
    return {"caller": {"type": kind, **({"tool_id": call} if call else {})}}


def _call(call: ToolCall) -> Json:
    block = {"type": "tool_use", "id": plain_id(call.id), "name": call.name, "input": call.arguments}
    more = without_nones(toolset_name=call.toolset)
    return {**block, **more, **_called_by(call.called_by), **cached(call.cache)}


def _text(part: TextPart) -> Json:
    cited = None if part.citations is None else _write_citations(part.citations)
    return {"type": "text", "text": part.text, **without_nones(citations=cited)}


def _texts(parts: list[TextPart]) -> list[Json]:
    return [{**_text(one), **cached(one.cache)} for one in parts]


def _read_text(block: Json) -> TextPart:
    cited = block.get("citations")
    found = None if cited is None else [read_citation(one) for one in objects(cited, "citations")]
    return TextPart(text(block.get("text"), "text"), hint(block), found)


def _read_image(block: Json) -> ImagePart:
    source = fields(block.get("source"), "source")
    return ImagePart(
        source.get("data"), source.get("url"), source.get("file_id"), source.get("media_type"), hint(block)
    )


def _source(part: ImagePart | DocumentPart) -> Json:
    if part.data is not None:
        return {"type": "base64", "media_type": part.media_type, "data": part.data}
    if part.url is not None:
        return {"type": "url", "url": part.url}
    if part.file_id is None:
        refuse("/input/messages", "an image by content hash must be fetched before it is sent")
    return {"type": "file", "file_id": part.file_id}


def _document(part: DocumentPart) -> Json:
    if part.text is not None:
        source: Json = {"type": "text", "media_type": part.media_type or _PLAIN, "data": part.text}
    elif part.texts is not None:
        source = {"type": "content", "content": _texts(part.texts)}
    elif part.data is not None and part.media_type != _PDF:
        source = {"type": "text", "media_type": _PLAIN, "data": _as_text(part)}
    else:
        source = _source(part)
    cited = None if part.citations is None else {"enabled": part.citations}
    return {
        "type": "document",
        "source": source,
        **without_nones(title=part.name, context=part.context, citations=cited),
    }


def _as_text(part: DocumentPart) -> str:
    """Return the text of a document that is no PDF."""
    if (part.media_type or "").startswith("text/"):
        try:
            return base64.b64decode(part.data or "").decode()
        except ValueError:
            refuse("/input/messages", "a text document must be base64 of UTF-8")
    refuse("/input/messages", f"Anthropic reads PDF and text, not {part.media_type or 'this document'}")


def _read_document(block: Json) -> DocumentPart:
    source = fields(block.get("source"), "source")
    kind, pieces = source.get("type"), source.get("content")
    if kind == "content":
        place: Json = {"texts": _read_pieces(pieces)}
    elif kind == "text":
        place = {"text": source.get("data"), "media_type": source.get("media_type")}
    else:
        place = {name: source.get(name) for name in ("data", "url", "file_id", "media_type")}
    cited = block.get("citations")
    return DocumentPart(
        name=block.get("title"),
        context=block.get("context"),
        citations=None if cited is None else fields(cited, "citations").get("enabled"),
        cache=hint(block),
        **place,
    )


def _read_pieces(content: Any) -> list[TextPart]:
    if isinstance(content, str):
        return [TextPart(content)]
    found = objects(content, "source.content")
    if any(one.get("type") != "text" for one in found):
        refuse("source.content", "a document in pieces holds texts alone; give its images beside it")
    return [_read_text(one) for one in found]


def _thinking(part: ThinkingPart) -> Json:
    if part.data is not None:
        return {"type": "redacted_thinking", "data": part.data}
    return {"type": "thinking", "thinking": part.text or "", **without_nones(signature=part.signature)}


def _search_result(part: SearchResultPart) -> Json:
    cited = None if part.citations is None else {"enabled": part.citations}
    found = {"source": part.source, "title": part.title, "content": _texts(part.texts)}
    return {"type": "search_result", **found, **without_nones(citations=cited)}


def _read_search_result(block: Json) -> SearchResultPart:
    cited = block.get("citations")
    return SearchResultPart(
        text(block.get("source"), "source"),
        text(block.get("title"), "title"),
        [_read_text(one) for one in objects(block.get("content"), "content")],
        None if cited is None else fields(cited, "citations").get("enabled"),
        hint(block),
    )


def _server_call(part: ServerCallPart) -> Json:
    kind = "server_tool_use" if part.server is None else "mcp_tool_use"
    block = {"type": kind, "id": part.id, "name": part.name, "input": part.arguments or {}}
    return {**block, **without_nones(server_name=part.server), **_called_by(part.called_by)}


def _read_server_call(block: Json) -> ServerCallPart:
    return ServerCallPart(
        text(block.get("name"), "name"),
        block.get("id"),
        fields(block.get("input"), "input"),
        block.get("server_name"),
        caller(block.get("caller")),
        cache=hint(block),
    )


def _served(part: ServerResultPart) -> Json:
    block = {"type": f"{part.name}{_RESULT}", "tool_use_id": part.id, "content": part.result}
    return {**block, **without_nones(is_error=part.is_error), **_called_by(part.called_by)}


def _read_served(block: Json) -> ServerResultPart:
    return ServerResultPart(
        block["type"].removesuffix(_RESULT),
        block.get("tool_use_id"),
        block.get("content"),
        block.get("is_error"),
        caller(block.get("caller")),
        cache=hint(block),
    )


_WRITERS: Final[dict[type, Callable[[Any], Json]]] = {
    TextPart: _text,
    ImagePart: lambda part: {"type": "image", "source": _source(part)},
    DocumentPart: _document,
    ThinkingPart: _thinking,
    RefusalPart: lambda part: {"type": "text", "text": part.text},
    JsonPart: lambda part: {"type": "text", "text": as_text(part.value)},
    SearchResultPart: _search_result,
    ToolReferencePart: lambda part: {"type": "tool_reference", "tool_name": part.name},
    UploadPart: lambda part: {"type": "container_upload", "file_id": part.file_id},
    ServerCallPart: _server_call,
    ServerResultPart: _served,
    SummaryPart: opaque_blocks.write_summary,
    ToolChangePart: opaque_blocks.write_change,
    ModelChangePart: opaque_blocks.write_fallback,
    ToolListingPart: opaque_blocks.write_listing,
}
_READERS: Final[dict[str, Callable[[Json], Part]]] = {
    "text": _read_text,
    "image": _read_image,
    "document": _read_document,
    "thinking": lambda block: ThinkingPart(block.get("thinking"), block.get("signature")),
    "redacted_thinking": lambda block: ThinkingPart(data=text(block.get("data"), "data")),
    "search_result": _read_search_result,
    "tool_reference": lambda block: ToolReferencePart(text(block.get("tool_name"), "tool_name"), hint(block)),
    "container_upload": lambda block: UploadPart(text(block.get("file_id"), "file_id"), hint(block)),
    "server_tool_use": _read_server_call,
    "mcp_tool_use": _read_server_call,
    "compaction": opaque_blocks.read_summary,
    "tool_addition": opaque_blocks.read_change,
    "tool_removal": opaque_blocks.read_change,
    "fallback": opaque_blocks.read_fallback,
    "mcp_tool_listing": opaque_blocks.read_listing,
}


def _write_citations(citations: list[Citation]) -> list[Json]:
    """Return the native citations.

    Those of a kind that this vendor lacks, or without a field that it requires, are dropped.
    """
    made = [_write_citation(citation) for citation in citations if citation.kind in _KINDS]
    return [native for native in made if _is_complete(native)]


def _is_complete(native: Json) -> bool:
    _, fields = _BY_TYPE[native["type"]]
    return all(name in native or name in _OPTIONAL for name in fields.values())


def _write_citation(citation: Citation) -> Json:
    kind, fields = _KINDS[citation.kind]
    given = {native: getattr(citation, ours) for ours, native in fields.items()}
    return {
        "type": kind,
        **{name: value for name, value in given.items() if value is not None or name in _TITLES},
    }


def read_citation(native: Json) -> Citation:
    """Return the citation of a text block or a citations_delta."""
    kind = text(native.get("type"), "citations.type")
    if kind not in _BY_TYPE:
        refuse("citations.type", f"no citation {kind!r} is known")
    ours, fields = _BY_TYPE[kind]
    return Citation(kind=ours, **{name: native.get(its) for name, its in fields.items()})  # type: ignore[arg-type]
