"""Content blocks of Converse: one small writer and one small reader for each kind.

Here a cache point is a block of its own; in the canonical form it is a hint of the part before it. A citation
has a location of one of five kinds or none, and words of the source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from hearthnet_llm.interface.content_parts import (
    AudioPart,
    CacheHint,
    CallPart,
    Citation,
    DocumentPart,
    ImagePart,
    JsonPart,
    Part,
    RefusalPart,
    SearchResultPart,
    ServerCallPart,
    ServerResultPart,
    TextPart,
    ThinkingPart,
    ToolReferencePart,
    VideoPart,
)
from hearthnet_llm.interface.frames import ToolCall
from hearthnet_llm.vendors.bedrock_converse import media
from hearthnet_llm.vendors.calls import plain_id
from hearthnet_llm.vendors.field_tables import read_fields, same_names, write_fields
from hearthnet_llm.vendors.json_access import as_text, entries, fields, objects, refuse, text, without_nones
from hearthnet_llm.vendors.wire import Json

SERVED: Final = "server_tool_use"
CALLED: Final = "tool_use"
RESULT: Final = "_result"
_REFERENCE: Final = "tool_reference"
STATUS: Final[dict[bool, str]] = {True: "error", False: "success"}
_NOWHERE: Final = "file"
"""The kind of a citation that only names its source."""
_SEARCH_RESULT: Final = {**same_names("source", "title", "citations"), "texts": "content"}
_IN_DOCUMENT: Final = {"index": "documentIndex", **same_names("start", "end")}
_CITATION: Final = {"title": "title", "url": "source", "quoted": "sourceContent"}
_PLACES: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "chars": ("documentChar", _IN_DOCUMENT),
    "pages": ("documentPage", _IN_DOCUMENT),
    "blocks": ("documentChunk", _IN_DOCUMENT),
    "web": ("web", {"url": "url", "reference": "domain"}),
    "search_result": ("searchResultLocation", {**_IN_DOCUMENT, "index": "searchResultIndex"}),
}


def write(part: Part, calls: dict[str, ToolCall], spelling: Mapping[str, str] = {}) -> list[Json]:
    """Return the block of a part, followed by a cache point if it has a hint.

    Raises:
        HearthNetError: `bad_request` for a part that the vendor does not support.
    """
    if isinstance(part, CallPart):
        call = calls[part.id]
        kind = {"type": CALLED} if spelling.get("call_type") == CALLED else {}
        used = {"toolUseId": plain_id(call.id), "name": call.name, "input": call.arguments, **kind}
        return [{"toolUse": used}, *cached(call.cache)]
    writer = _WRITERS.get(type(part))
    if writer is None:
        refuse("/input/messages", f"Bedrock takes no {part.__struct_config__.tag}")
    return [writer(part), *cached(getattr(part, "cache", None))]


def write_result(part: Part) -> list[Json]:
    """Return the block of a part of a tool's result.

    The result is empty for a part that is allowed only in user content.
    """
    if isinstance(part, JsonPart):
        return [{"json": part.value}]
    return [] if isinstance(part, ToolReferencePart) else write(part, {})[:1]


def cached(cache: CacheHint | None) -> list[Json]:
    """Return the cache point of a hint, if there is one."""
    if cache is None:
        return []
    return [{"cachePoint": {"type": "default", **without_nones(ttl=cache.ttl)}}]


def read_all(content: Any, where: str, reader: Callable[[Json, str], Any] | None = None) -> list[Any]:
    """Return all blocks as read by `reader` (by default `read`), with hints for the cache points.

    Raises:
        HearthNetError: `bad_request` if a cache point follows nothing that can have a hint, or another one.
    """
    made: list[Any] = []
    for block, path in entries(content, where):
        if "cachePoint" not in block:
            made.append((reader or read)(block, path))
        elif not made or getattr(made[-1], "cache", block) is not None:
            refuse(path, "a cache point must follow something that can be kept, and only once")
        else:
            cache = CacheHint(fields(block["cachePoint"], f"{path}.cachePoint").get("ttl"))
            made[-1] = msgspec.structs.replace(made[-1], cache=cache)
    return made


def read(block: Json, where: str) -> Part:
    """Return the part of a block that is neither a call nor a call's result."""
    medium = media.read(block, where)
    if medium is not None:
        return medium
    for name, reader in _READERS.items():
        if name in block:
            return reader(block[name], f"{where}.{name}")
    refuse(where, f"no block of {', '.join(block) or 'nothing'} is known")


def _text(part: TextPart) -> Json:
    if part.guard is not None:
        guarded = {"text": part.text, **without_nones(qualifiers=part.guard or None)}
        return {"guardContent": {"text": guarded}}
    if part.citations is not None:
        content = {"content": [{"text": part.text}]} if part.text else {}
        return {"citationsContent": {**content, "citations": _write_citations(part.citations)}}
    return {"text": part.text}


def _read_text(value: Any, where: str) -> TextPart:
    return TextPart(text(value, where))


def _read_guarded(value: Any, where: str) -> TextPart:
    guarded = fields(value, where)
    if "text" not in guarded:
        refuse(where, "only a text can be marked for a guardrail")
    inner = fields(guarded["text"], f"{where}.text")
    return TextPart(text(inner.get("text"), f"{where}.text.text"), guard=inner.get("qualifiers") or [])


def _read_cited(value: Any, where: str) -> TextPart:
    native = fields(value, where)
    words = "".join(str(one.get("text") or "") for one in objects(native.get("content"), f"{where}.content"))
    found = [read_citation(one) for one in objects(native.get("citations"), f"{where}.citations")]
    return TextPart(words, citations=[one for one in found if one is not None])


def _thinking(part: ThinkingPart) -> Json:
    if part.data is not None:
        return {"reasoningContent": {"redactedContent": part.data}}
    thought = {"text": part.text or "", **without_nones(signature=part.signature)}
    return {"reasoningContent": {"reasoningText": thought}}


def read_thinking(value: Any, where: str) -> ThinkingPart:
    """Return the thought in a reasoningContent block."""
    native = fields(value, where)
    if "redactedContent" in native:
        return ThinkingPart(data=text(native["redactedContent"], f"{where}.redactedContent"))
    thought = fields(native.get("reasoningText"), f"{where}.reasoningText")
    return ThinkingPart(thought.get("text"), thought.get("signature"))


def _read_search_result(value: Any, where: str) -> SearchResultPart:
    return SearchResultPart(**read_fields(fields(value, where), _SEARCH_RESULT, media.READ, f"{where}."))


def _read_added(value: Any, where: str) -> ToolReferencePart:
    tool = fields(fields(value, where).get("tool"), f"{where}.tool")
    if tool.get("serverName") is not None:
        refuse(f"{where}.tool.serverName", "only tools that the request declares can be added")
    return ToolReferencePart(text(tool.get("name"), f"{where}.tool.name"))


def _server_call(part: ServerCallPart) -> Json:
    used = {"toolUseId": part.id, "name": part.name, "input": part.arguments or {}, "type": SERVED}
    return {"toolUse": used}


def _read_server_call(value: Any, where: str) -> ServerCallPart:
    native = fields(value, where)
    if native.get("type") != SERVED:
        refuse(where, "a call of the model stands only in what an assistant says")
    name = text(native.get("name"), f"{where}.name")
    return ServerCallPart(name, native.get("toolUseId"), native.get("input") or {})


def _served(part: ServerResultPart) -> Json:
    values = part.result if isinstance(part.result, list) else [part.result]
    content = [{"text" if isinstance(one, str) else "json": one} for one in values]
    status = {} if part.is_error is None else {"status": STATUS[part.is_error]}
    result = {"toolUseId": part.id, "content": content, "type": f"{part.name}{RESULT}", **status}
    return {"toolResult": result}


def read_served(value: Any, where: str, called: Mapping[str, str] = {}) -> ServerResultPart:
    """Return the result of one of the vendor's own tools.

    `called` maps ids of calls to tools, for a result that does not name its tool.
    """
    native = fields(value, where)
    content = objects(native.get("content"), f"{where}.content")
    identity = native.get("toolUseId")
    kind = text(native.get("type") or called.get(str(identity)), f"{where}.type")
    values = [one.get("text", one.get("json")) for one in content]
    result = values[0] if len(values) == 1 and not isinstance(values[0], list) else values
    return ServerResultPart(kind.removesuffix(RESULT), identity, result, failed(native.get("status")))


def failed(status: Any) -> bool | None:
    """Return whether a status means failure, or None without a status."""
    return None if status is None else status == STATUS[True]


_WRITERS: Final[dict[type, Callable[[Any], Json]]] = {
    TextPart: _text,
    ImagePart: media.write,
    DocumentPart: media.write,
    VideoPart: media.write,
    AudioPart: media.write,
    ThinkingPart: _thinking,
    RefusalPart: lambda part: {"text": part.text},
    JsonPart: lambda part: {"text": as_text(part.value)},
    SearchResultPart: lambda part: {"searchResult": write_fields(part, _SEARCH_RESULT, media.WRITTEN)},
    ServerCallPart: _server_call,
    ServerResultPart: _served,
    ToolReferencePart: lambda part: {"toolAddition": {"tool": {"type": _REFERENCE, "name": part.name}}},
}
_READERS: Final[dict[str, Callable[[Any, str], Part]]] = {
    "text": _read_text,
    "json": lambda value, where: JsonPart(value),
    "guardContent": _read_guarded,
    "citationsContent": _read_cited,
    "reasoningContent": read_thinking,
    "searchResult": _read_search_result,
    "toolUse": _read_server_call,
    "toolResult": read_served,
    "toolAddition": _read_added,
}


def _write_citations(citations: list[Citation]) -> list[Json]:
    """Return the native citations, without those of a kind that only other vendors have."""
    return [
        _write_citation(citation)
        for citation in citations
        if citation.kind in _PLACES or (citation.kind == _NOWHERE and citation.file_id is None)
    ]


def _write_citation(citation: Citation) -> Json:
    about = write_fields(citation, _CITATION, {"quoted": lambda quoted: [{"text": quoted}]})
    if citation.kind not in _PLACES:
        return about
    name, names = _PLACES[citation.kind]
    if citation.kind == "web":
        about.pop("source", None)  # a page's address stands in its place
    place = write_fields(citation, names)
    if str(place.get("domain", "")) not in (citation.url or place.get("domain", "")):
        del place["domain"]  # another vendor's reference
    return {**about, "location": {name: place}}


def read_citation(native: Json) -> Citation | None:
    """Return the citation of a block or a delta, or None if its kind is unknown."""
    location = fields(native.get("location") or {}, "location")
    about = read_fields(native, _CITATION, {"quoted": _read_quoted})
    if not location:
        return Citation(_NOWHERE, **about)
    for kind, (name, names) in _PLACES.items():
        if name in location:
            place = read_fields(fields(location[name], f"location.{name}"), names)
            return Citation(kind=kind, **{**about, **place})  # type: ignore[arg-type]
    return None


def _read_quoted(native: Any, where: str) -> str | None:
    pieces = [str(one.get("text") or "") for one in objects(native, where)]
    return "".join(pieces) if pieces else None
