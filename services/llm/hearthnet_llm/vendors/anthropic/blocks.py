"""Content blocks of Anthropic Messages: a table of fields for each kind of part, and what deviates from it.

Each kind of citation has fields of its own. Some parts other than text and calls are required by the API in
later requests: summaries of earlier messages, changes of the model and of the tools, listings of MCP servers.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal, TypeVar

import msgspec

from hearthnet_llm.interface.content_parts import (
    CacheHint,
    CallPart,
    Citation,
    DocumentPart,
    ImagePart,
    JsonPart,
    ListedTool,
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
from hearthnet_llm.vendors.calls import plain_id
from hearthnet_llm.vendors.field_tables import read_fields, same_names, write_fields
from hearthnet_llm.vendors.json_access import as_text, fields, objects, refuse, text, without_nones
from hearthnet_llm.vendors.wire import Json

_Struct = TypeVar("_Struct", bound=msgspec.Struct)
_RESULT: Final = "_tool_result"
_PDF: Final = "application/pdf"
_PLAIN: Final = "text/plain"
_SOURCE: Final = ("data", "url", "file_id", "media_type")
_CALL: Final = {"id": "id", "name": "name", "arguments": "input", "called_by": "caller"}
_FIELDS: Final[dict[type, dict[str, str]]] = {
    TextPart: same_names("text", "citations"),
    ImagePart: {},
    DocumentPart: {"name": "title", "context": "context", "citations": "citations"},
    ThinkingPart: {"text": "thinking", "signature": "signature"},
    SearchResultPart: {"source": "source", "title": "title", "texts": "content", "citations": "citations"},
    ToolReferencePart: {"name": "tool_name"},
    UploadPart: {"file_id": "file_id"},
    ToolCall: {**_CALL, "toolset": "toolset_name"},
    ServerCallPart: {**_CALL, "server": "server_name"},
    ServerResultPart: {
        "id": "tool_use_id",
        "result": "content",
        "is_error": "is_error",
        "called_by": "caller",
    },
    SummaryPart: {
        "text": "content",
        "data": "encrypted_content",
        "signature": "signature",
        "changes": "tool_changes",
    },
    ToolListingPart: {"server": "mcp_server_name", "tools": "tools"},
    ListedTool: {"name": "name", "description": "description", "parameters_schema": "input_schema"},
}
"""Native names of the fields of each struct; a cache hint has the same name in all that have one."""
_CHANGES: Final[dict[str, Literal["added", "removed"]]] = {
    "tool_addition": "added",
    "tool_removal": "removed",
}
_CHANGE_TYPES: Final = {ours: native for native, ours in _CHANGES.items()}
_COMMON: Final = {"quoted": "cited_text", "file_id": "file_id"}
_BLOCKS: Final = {"start": "start_block_index", "end": "end_block_index"}
_DOCUMENT: Final = {**_COMMON, "index": "document_index", "title": "document_title"}
_KINDS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "chars": ("char_location", {**_DOCUMENT, "start": "start_char_index", "end": "end_char_index"}),
    "pages": ("page_location", {**_DOCUMENT, "start": "start_page_number", "end": "end_page_number"}),
    "blocks": ("content_block_location", {**_DOCUMENT, **_BLOCKS}),
    "web": (
        "web_search_result_location",
        {**_COMMON, "title": "title", "url": "url", "reference": "encrypted_index"},
    ),
    "search_result": (
        "search_result_location",
        {**_COMMON, **_BLOCKS, "title": "title", "url": "source", "index": "search_result_index"},
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
        call = calls[part.id]
        return {"type": "tool_use", **write_struct(call), "id": plain_id(call.id), **cached(call.cache)}
    writer = _WRITERS.get(type(part))
    if writer is None:
        refuse("/input/messages", f"Anthropic takes no {part.__struct_config__.tag}")
    return {**writer(part), **cached(getattr(part, "cache", None))}


def read(block: Json, where: str) -> Part:
    """Return the part of a block that is neither a call nor a result."""
    kind = text(block.get("type"), f"{where}.type")
    if kind.endswith(_RESULT):
        return read_struct(ServerResultPart, block, name=kind.removesuffix(_RESULT))
    reader = _READERS.get(kind)
    if reader is None:
        refuse(where, f"no block {kind!r} is known")
    return reader(block)


def write_struct(value: Any) -> Json:
    """Return the native fields of a part, a call or a listed tool."""
    return write_fields(value, _FIELDS[type(value)], _WRITTEN)


def read_struct(kind: type[_Struct], native: Json, **others: Any) -> _Struct:
    """Return the struct of native fields, and of `others` as they are."""
    if "cache" in kind.__struct_fields__:
        others["cache"] = hint(native)
    return kind(**read_fields(native, _FIELDS[kind], _READ), **others)


def cached(cache: CacheHint | None) -> Json:
    """Return the field of a cache hint, or nothing."""
    return {} if cache is None else {"cache_control": ephemeral(cache)}


def ephemeral(cache: CacheHint) -> Json:
    """Return a native cache hint."""
    return {"type": "ephemeral", **without_nones(ttl=cache.ttl)}


def hint(native: Json) -> CacheHint | None:
    """Return the cache hint of a block, a tool or a request, or None."""
    found = native.get("cache_control")
    return None if found is None else CacheHint(fields(found, "cache_control").get("ttl"))


def _read_caller(native: Any, where: str) -> str:
    """Return the maker of a call: "direct" for the model, else the vendor's tool and call id."""
    found = fields(native, where)
    kind = text(found.get("type"), f"{where}.type")
    return f"{kind}/{found['tool_id']}" if "tool_id" in found else kind


def _write_caller(made_by: str) -> Json:
    kind, _, call = made_by.partition("/")
    return {"type": kind, **({"tool_id": call} if call else {})}


def _named(kind: str, **usual: Any) -> Callable[[Any], Json]:
    """Return a writer of blocks of `kind`; `usual` has values for fields that are never absent."""
    return lambda part: {"type": kind, **usual, **write_struct(part)}


def _source(part: ImagePart | DocumentPart) -> Json:
    if part.data is not None:
        return {"type": "base64", "media_type": part.media_type, "data": part.data}
    if part.url is not None:
        return {"type": "url", "url": part.url}
    if part.file_id is None:
        refuse("/input/messages", "an image by content hash must be fetched before it is sent")
    return {"type": "file", "file_id": part.file_id}


def _read_image(block: Json) -> ImagePart:
    source = fields(block.get("source"), "source")
    return read_struct(ImagePart, block, **{name: source.get(name) for name in _SOURCE})


def _document(part: DocumentPart) -> Json:
    if part.text is not None:
        source: Json = {"type": "text", "media_type": part.media_type or _PLAIN, "data": part.text}
    elif part.texts is not None:
        source = {"type": "content", "content": _write_all(part.texts)}
    elif part.data is not None and part.media_type != _PDF:
        source = {"type": "text", "media_type": _PLAIN, "data": _as_text(part)}
    else:
        source = _source(part)
    return {"type": "document", "source": source, **write_struct(part)}


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
        place = {name: source.get(name) for name in _SOURCE}
    return read_struct(DocumentPart, block, **place)


def _read_server_call(block: Json) -> ServerCallPart:
    return read_struct(ServerCallPart, {**block, "input": fields(block.get("input"), "input")})


def _read_pieces(content: Any) -> list[TextPart]:
    if isinstance(content, str):
        return [TextPart(content)]
    if any(one.get("type") != "text" for one in objects(content, "source.content")):
        refuse("source.content", "a document in pieces holds texts alone; give its images beside it")
    return _read_texts(content, "source.content")


def _read_texts(content: Any, where: str) -> list[TextPart]:
    return [read_struct(TextPart, one) for one in objects(content, where)]


def _write_all(parts: list[Any]) -> list[Json]:
    return [write(part, {}) for part in parts]


def _thinking(part: ThinkingPart) -> Json:
    if part.data is not None:
        return {"type": "redacted_thinking", "data": part.data}
    return {"type": "thinking", "thinking": "", **write_struct(part)}


def _server_call(part: ServerCallPart) -> Json:
    kind = "server_tool_use" if part.server is None else "mcp_tool_use"
    return {"type": kind, "input": {}, **write_struct(part)}


def _write_change(part: ToolChangePart) -> Json:
    """Return the tool_addition or tool_removal block of a change."""
    if part.name is None and part.server is None:
        refuse("/input/messages", "a change of the tools names a tool, a server, or both")
    kind = "tool_reference" if part.server is None else "mcp_tool_reference"
    kind = "mcp_toolset_reference" if part.name is None else kind
    tool = {"type": kind, **without_nones(name=part.name, server_name=part.server)}
    return {"type": _CHANGE_TYPES[part.change], "tool": tool}


def _read_change(block: Json) -> ToolChangePart:
    """Return the change of a tool_addition or tool_removal block.

    Raises:
        HearthNetError: `bad_request` if the block declares the tool itself.
    """
    tool = fields(block.get("tool"), "tool")
    if "definition" in tool:
        refuse("tool.definition", "a tool is declared among the tools, not in a message")
    change = _CHANGES[block["type"]]
    return ToolChangePart(change, tool.get("name"), tool.get("server_name"), hint(block))


def _write_fallback(part: ModelChangePart) -> Json:
    """Return the fallback block of a change of the model."""
    trigger = None if part.reason is None else {"type": part.reason, **without_nones(category=part.category)}
    sides = {"from": {"model": part.before}, "to": {"model": part.after}}
    return {"type": "fallback", **sides, **without_nones(trigger=trigger)}


def _read_fallback(block: Json) -> ModelChangePart:
    sides = [fields(block.get(side) or {}, side).get("model") or "" for side in ("from", "to")]
    trigger = fields(block.get("trigger") or {}, "trigger")
    return ModelChangePart(sides[0], sides[1], trigger.get("type"), trigger.get("category"))


def write_listed(tools: list[ListedTool]) -> list[Json]:
    """Return native descriptions of an MCP server's tools."""
    return [{"input_schema": {}, **write_struct(tool)} for tool in tools]


def read_listed(native: Any, where: str) -> list[ListedTool]:
    """Return the tools in native descriptions."""
    return [read_struct(ListedTool, tool) for tool in objects(native, where)]


def _write_cited(cited: bool | list[Citation]) -> Json | list[Json]:
    """Return whether citations are requested, or those of a text.

    Citations of a kind that this vendor lacks, or without a field that it requires, are dropped.
    """
    if isinstance(cited, bool):
        return {"enabled": cited}
    made = [_write_citation(citation) for citation in cited if citation.kind in _KINDS]
    return [native for native in made if _is_complete(native)]


def _read_cited(native: Any, where: str) -> bool | list[Citation] | None:
    if isinstance(native, dict):
        return native.get("enabled")
    return [read_citation(one) for one in objects(native, where)]


def _is_complete(native: Json) -> bool:
    _, fields = _BY_TYPE[native["type"]]
    return all(name in native or name in _OPTIONAL for name in fields.values())


def _write_citation(citation: Citation) -> Json:
    kind, names = _KINDS[citation.kind]
    unknown = {native: None for native in names.values() if native in _TITLES}
    return {"type": kind, **unknown, **write_fields(citation, names)}


def read_citation(native: Json) -> Citation:
    """Return the citation of a text block or a citations_delta."""
    kind = text(native.get("type"), "citations.type")
    if kind not in _BY_TYPE:
        refuse("citations.type", f"no citation {kind!r} is known")
    ours, names = _BY_TYPE[kind]
    return Citation(kind=ours, **read_fields(native, names))  # type: ignore[arg-type]


_WRITERS: Final[dict[type, Callable[[Any], Json]]] = {
    TextPart: _named("text"),
    ImagePart: lambda part: {"type": "image", "source": _source(part)},
    DocumentPart: _document,
    ThinkingPart: _thinking,
    RefusalPart: lambda part: {"type": "text", "text": part.text},
    JsonPart: lambda part: {"type": "text", "text": as_text(part.value)},
    SearchResultPart: _named("search_result"),
    ToolReferencePart: _named("tool_reference"),
    UploadPart: _named("container_upload"),
    ServerCallPart: _server_call,
    ServerResultPart: lambda part: {"type": f"{part.name}{_RESULT}", "content": None, **write_struct(part)},
    SummaryPart: _named("compaction", content=None),
    ToolChangePart: _write_change,
    ModelChangePart: _write_fallback,
    ToolListingPart: _named("mcp_tool_listing"),
}
_READERS: Final[dict[str, Callable[[Json], Part]]] = {
    "text": partial(read_struct, TextPart),
    "image": _read_image,
    "document": _read_document,
    "thinking": partial(read_struct, ThinkingPart),
    "redacted_thinking": lambda block: ThinkingPart(data=text(block.get("data"), "data")),
    "search_result": lambda block: read_struct(SearchResultPart, {"content": []} | without_nones(**block)),
    "tool_reference": partial(read_struct, ToolReferencePart),
    "container_upload": partial(read_struct, UploadPart),
    "server_tool_use": _read_server_call,
    "mcp_tool_use": _read_server_call,
    "compaction": partial(read_struct, SummaryPart),
    "tool_addition": _read_change,
    "tool_removal": _read_change,
    "fallback": _read_fallback,
    "mcp_tool_listing": lambda block: read_struct(ToolListingPart, {"tools": []} | without_nones(**block)),
}
_WRITTEN: Final[dict[str, Callable[[Any], Any]]] = {
    "called_by": _write_caller,
    "changes": _write_all,
    "citations": _write_cited,
    "texts": _write_all,
    "tools": write_listed,
}
"""Writers of fields that natively have another form, and below their readers."""
_READ: Final[dict[str, Callable[[Any, str], Any]]] = {
    "called_by": _read_caller,
    "changes": lambda native, where: [_read_change(one) for one in objects(native, where)],
    "citations": _read_cited,
    "texts": _read_texts,
    "tools": read_listed,
}
