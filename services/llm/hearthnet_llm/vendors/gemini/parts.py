"""Parts of a content: one small writer and one small reader for each kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hearthnet_llm.interface.content_parts import (
    AudioPart,
    DocumentPart,
    ImagePart,
    JsonPart,
    Part,
    RefusalPart,
    ServerCallPart,
    ServerResultPart,
    TextPart,
    ThinkingPart,
    VideoPart,
)
from hearthnet_llm.vendors.field_tables import read_fields, write_fields
from hearthnet_llm.vendors.json_access import as_text, fields, refuse, text, without_nones
from hearthnet_llm.vendors.wire import Json

CODE: Final = "code_execution"
"""The vendor's interpreter, whose calls and results have kinds of their own."""
UNNAMED: Final = "unnamed_tool"
"""Stand-in name for a tool of the vendor whose calls do not name it."""
_TYPES: Final = (
    *("google_search_web", "google_search_image", "url_context", "google_maps", "file_search"),
    "media_processing",
)
_SERVED: Final = ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")
"""Calls and results of the vendor's own tools."""
_KINDS: Final = ("inlineData", "fileData", *_SERVED)
"""Kinds of parts other than texts, and the calls and results of functions."""
_LEVEL: Final = "MEDIA_RESOLUTION_"
_DETAILS: Final = ("low", "medium", "high", "ultra_high")
_AS_IT_LIKES: Final = "auto"
_SECTION: Final = {"start": "startOffset", "end": "endOffset", "fps": "fps"}

Media = ImagePart | AudioPart | VideoPart | DocumentPart


def write(part: Part) -> Json:
    """Return the native part.

    Raises:
        HearthNetError: `bad_request` for a part that this vendor does not support.
    """
    writer = _WRITERS.get(type(part))
    if writer is None:
        refuse("/input/messages", f"Gemini takes no {part.__struct_config__.tag}")
    signature = getattr(part, "signature", None)
    return {**writer(part), **without_nones(thoughtSignature=signature)}


def read(native: Json, where: str) -> Part:
    """Return the part of a native one that is neither a call nor a call's result."""
    if native.get("text") is not None:
        words, signature = text(native["text"], f"{where}.text"), native.get("thoughtSignature")
        if native.get("thought"):
            return ThinkingPart(words, signature)
        return TextPart(words, signature=signature)
    name = next((name for name in _KINDS if native.get(name) is not None), None)
    if name is None:
        refuse(where, f"no part of {', '.join(native) or 'nothing'} is known")
    if native.get("thought"):
        refuse(f"{where}.thought", f"is known of text alone, not of {name}")
    return read_served(native, where) or read_media(native, where)


def _thinking(part: ThinkingPart) -> Json:
    """Return a thought, or the proof of a hidden one."""
    return {"text": ""} if part.text is None else {"text": part.text, "thought": True}


def _media(part: Media) -> Json:
    named = without_nones(displayName=part.name)
    if isinstance(part, DocumentPart) and part.text is not None:
        return {"text": part.text}
    if part.data is not None:
        return {"inlineData": {"mimeType": part.media_type, "data": part.data, **named}, **_film(part)}
    place = part.url or part.file_id
    if place is None:
        refuse("/input/messages", f"Gemini takes no {part.__struct_config__.tag} of this form")
    return {"fileData": {"fileUri": place, **without_nones(mimeType=part.media_type), **named}, **_film(part)}


def _film(part: Media) -> Json:
    """Return the fields beside a medium's source: resolution, and section of a video."""
    detail = None if isinstance(part, AudioPart) or part.detail == _AS_IT_LIKES else part.detail
    level = f"{_LEVEL}{detail.upper()}" if detail in _DETAILS else detail
    beside: Json = {} if level is None else {"mediaResolution": {"level": level}}
    if not isinstance(part, VideoPart):
        return beside
    about = write_fields(part, _SECTION)
    return {
        **beside,
        **({"videoMetadata": about} if about else {}),
        **without_nones(mediaProcessing=part.processing),
    }


def _read_level(level: Any) -> Any:
    """Return the resolution in the words of the contract; another word stays as it is."""
    word = str(level).removeprefix(_LEVEL).lower()
    return word if level == f"{_LEVEL}{word.upper()}" and word in _DETAILS else level


def read_media(native: Json, where: str) -> Media:
    """Return the medium of a part with inlineData or fileData."""
    inline = native.get("inlineData")
    place = fields(native.get("fileData") if inline is None else inline, where)
    media_type = place.get("mimeType")
    found = without_nones(
        data=place.get("data"),
        url=place.get("fileUri"),
        media_type=media_type,
        name=place.get("displayName"),
        signature=native.get("thoughtSignature"),
    )
    family = str(media_type or "").partition("/")[0]
    if native.get("videoMetadata"):
        family = "video"  # a page of YouTube has no media type
    if family == AudioPart.__struct_config__.tag:
        return AudioPart(**found)
    closely = fields(native.get("mediaResolution") or {}, f"{where}.mediaResolution")
    found |= without_nones(detail=_read_level(closely.get("level")))
    if family == ImagePart.__struct_config__.tag:
        return ImagePart(**found)
    if family != VideoPart.__struct_config__.tag:
        return DocumentPart(**found)
    about = fields(native.get("videoMetadata") or {}, f"{where}.videoMetadata")
    return VideoPart(**found, **read_fields(about, _SECTION), processing=native.get("mediaProcessing"))


def _server_call(part: ServerCallPart) -> Json:
    named = without_nones(id=part.id)
    if part.name == CODE:
        return {"executableCode": {**named, **(part.arguments or {})}}
    return {"toolCall": {**named, **_typed(part.name), **without_nones(args=part.arguments)}}


def _served(part: ServerResultPart) -> Json:
    named = without_nones(id=part.id)
    if part.name == CODE:
        outcome = part.result if isinstance(part.result, dict) else {"output": part.result}
        return {"codeExecutionResult": {**named, **outcome}}
    return {"toolResponse": {**named, **_typed(part.name), **without_nones(response=part.result)}}


def is_native(part: ServerCallPart | ServerResultPart) -> bool:
    """Return whether it belongs to a tool of this vendor."""
    foreign = isinstance(part, ServerResultPart) and not isinstance(part.result, dict | None)
    return part.name in (CODE, UNNAMED, *_TYPES) and not foreign


def _typed(name: str) -> Json:
    return {} if name == UNNAMED else {"toolType": name.upper()}


def _read_type(native: Json, where: str) -> str:
    kind = native.get("toolType")
    return UNNAMED if kind is None else text(kind, f"{where}.toolType").lower()


def read_served(native: Json, where: str = "") -> ServerCallPart | ServerResultPart | None:
    """Return a call of one of the vendor's own tools or its result, or None for another part."""
    name = next((name for name in _SERVED if native.get(name) is not None), None)
    if name is None:
        return None
    path = f"{where}.{name}"
    body = fields(native[name], path)
    common = {"id": body.get("id"), "signature": native.get("thoughtSignature")}
    rest = {name: value for name, value in body.items() if name != "id"}
    match name:
        case "executableCode":
            return ServerCallPart(CODE, arguments=rest, **common)
        case "codeExecutionResult":
            return ServerResultPart(CODE, result=rest, **common)
        case "toolCall":
            return ServerCallPart(_read_type(body, path), arguments=body.get("args"), **common)
        case _:
            return ServerResultPart(_read_type(body, path), result=body.get("response"), **common)


_WRITERS: Final[dict[type, Callable[[Any], Json]]] = {
    TextPart: lambda part: {"text": part.text},
    ThinkingPart: _thinking,
    ImagePart: _media,
    AudioPart: _media,
    VideoPart: _media,
    DocumentPart: _media,
    RefusalPart: lambda part: {"text": part.text},
    JsonPart: lambda part: {"text": as_text(part.value)},
    ServerCallPart: _server_call,
    ServerResultPart: _served,
}
