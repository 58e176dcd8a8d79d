"""Content parts in both directions: one small writer and one small reader a kind."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, get_args

from hearthnet_llm.interface.content_parts import (
    AudioPart,
    CacheHint,
    CallPart,
    DocumentPart,
    ImagePart,
    JsonPart,
    Part,
    RefusalPart,
    SearchResultPart,
    ServerPart,
    TextPart,
    ThinkingPart,
    ToolChangePart,
    ToolReferencePart,
    VideoPart,
)
from hearthnet_llm.interface.request import Message
from hearthnet_llm.vendors.json_access import as_text, entries, fields, objects, refuse, text, without_nones
from hearthnet_llm.vendors.openai.dialect import Choices
from hearthnet_llm.vendors.wire import Json

_LEFT_OUT: Final = (CallPart, *get_args(ServerPart), ToolReferencePart, ToolChangePart)
"""Parts of other vendors that this protocol lacks; they are left out."""

_SOUNDS: Final = {
    "mpeg": "mp3",
    "x-mp3": "mp3",
    "mpeg3": "mp3",
    "wave": "wav",
    "x-wav": "wav",
    "vnd.wave": "wav",
}
"""Names of formats that servers know by another one."""
_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.*)", re.DOTALL)


def write_content(content: str | list[Part] | None, choices: Choices) -> str | list[Json] | None:
    """Return the native content, with thoughts only if the vendor keeps them in it."""
    if content is None or isinstance(content, str):
        return content
    left_out = _LEFT_OUT if choices["thoughts"] == "content" else (*_LEFT_OUT, ThinkingPart)
    sent = (part for part in content if not isinstance(part, left_out))
    made = [write_part(part, choices) for part in sent if not _is_voice(part)]
    return made if made or (not content and choices["no_content"] == "list") else None


def write_voice(message: Message) -> Json:
    """Return the native field of an earlier spoken answer, which the vendor keeps under an id."""
    if message.role != "assistant" or not isinstance(message.content, list):
        return {}
    spoken = [part.file_id for part in message.content if isinstance(part, AudioPart) and part.file_id]
    return {"audio": {"id": spoken[0]}} if spoken else {}


def write_part(part: Part, choices: Choices) -> Json:
    """Return one native part.

    Raises:
        HearthNetError: `bad_request` for a kind that this protocol lacks, and for an image that was not
            fetched.
    """
    writer = _WRITERS.get(type(part))
    if writer is None:
        refuse("/input/messages", f"a model of this kind takes no {part.__struct_config__.tag} in a message")
    return {**writer(part, choices), **write_cache(getattr(part, "cache", None))}


def write_cache(cache: CacheHint | None) -> Json:
    """Return the native cache hint, or nothing."""
    return {} if cache is None else {"cache_control": {"type": "ephemeral", **without_nones(ttl=cache.ttl)}}


def _is_voice(part: Part) -> bool:
    """Return whether a part is a spoken answer kept by the vendor, written beside the content."""
    return isinstance(part, AudioPart) and part.file_id is not None


def _image(part: ImagePart, choices: Choices) -> Json:
    url = _to_url(part)
    if url is None:
        refuse("/input/messages", "an image for this model must be given by value or by URL")
    if choices["image"] == "text":
        return {"type": "image_url", "image_url": url}
    return {"type": "image_url", "image_url": {"url": url, **without_nones(detail=part.detail)}}


def _audio(part: AudioPart, choices: Choices) -> Json:
    if choices["audio"] == "audio_url":
        return {"type": "audio_url", "audio_url": {"url": _to_url(part)}}
    if choices["audio"] == "text":
        return {"type": "input_audio", "input_audio": _to_url(part) or part.data}
    if part.data is None:
        refuse("/input/messages", "a recording for this model must be given by value")
    named = (part.media_type or "").removeprefix("audio/")
    sound = {"data": part.data, "format": _SOUNDS.get(named, named)}
    return {"type": "input_audio", "input_audio": sound}


def _video(part: VideoPart, _choices: Choices) -> Json:
    url = _to_url(part)
    if url is None:
        refuse(
            "/input/messages", "a film for this model must be given by value, with its media_type, or by URL"
        )
    return {"type": "video_url", "video_url": {"url": url, **without_nones(fps=part.fps)}}


def _document(part: DocumentPart, choices: Choices) -> Json:
    if part.text is not None or part.texts is not None:
        pieces = [part.name, part.text, *(one.text for one in part.texts or ())]
        return {"type": "text", "text": "\n".join(piece for piece in pieces if piece is not None)}
    if choices["document"] == "file_url":
        return {"type": "file_url", "file_url": {"url": _to_url(part) or part.data}}
    if choices["document"] == "file_id" and part.file_id is not None:
        return {"type": "file", "file_id": part.file_id}
    if choices["document"] == "document_url":
        named = without_nones(document_name=part.name)
        return {"type": "document_url", "document_url": _to_url(part), **named}
    file = without_nones(file_id=part.file_id, filename=part.name)
    if part.file_id is None:
        file["file_data"] = _to_url(part) or part.data
    return {"type": "file", "file": file}


def _search_result(part: SearchResultPart, _choices: Choices) -> Json:
    lines = [f"{part.title} ({part.source})", *(one.text for one in part.texts)]
    return {"type": "text", "text": "\n".join(lines)}


def _thinking(part: ThinkingPart, _choices: Choices) -> Json:
    made = {"type": "thinking", "thinking": [{"type": "text", "text": part.text or ""}]}
    return made | without_nones(closed=part.closed)


_WRITERS: Final[dict[type, Callable[[Any, Choices], Json]]] = {
    TextPart: lambda part, _choices: {"type": "text", "text": part.text},
    ImagePart: _image,
    AudioPart: _audio,
    VideoPart: _video,
    DocumentPart: _document,
    SearchResultPart: _search_result,
    JsonPart: lambda part, _choices: {"type": "text", "text": as_text(part.value)},
    ThinkingPart: _thinking,
    RefusalPart: lambda part, _choices: {"type": "refusal", "refusal": part.text},
}


def _of_url(url: str) -> Json:
    """Return the canonical fields of the content or target of a URL."""
    found = _DATA_URL.fullmatch(url)
    return {"url": url} if found is None else {"media_type": found[1], "data": found[2]}


def _to_url(part: ImagePart | AudioPart | VideoPart | DocumentPart) -> str | None:
    """Return the URL of a part's bytes, or its own URL, or None."""
    if part.data is not None and part.media_type is not None:
        return f"data:{part.media_type};base64,{part.data}"
    return part.url


def read_content(content: Any, path: str, spelling: dict[str, str]) -> Any:
    """Return the canonical content."""
    if content is None or isinstance(content, str):
        return content
    found = []
    for part, place in entries(content, path):
        kind = str(part.get("type"))
        reader = _READERS.get(kind)
        if reader is None:
            refuse(f"{place}.type", f"{kind!r} is no known kind of content")
        found.append({**reader(part, place, spelling), **read_cache(part)})
    return found


def read_voice(message: Json, content: Any) -> Any:
    """Return the `content` of an assistant's message with its spoken answer added."""
    voice = message.get("audio")
    if not isinstance(voice, dict) or voice.get("id") is None:
        return content
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    return [*parts, {"type": "audio", "file_id": voice["id"]}]


def read_cache(native: Json) -> Json:
    """Return the canonical cache hint of a native object as a field, or nothing."""
    hint = native.get("cache_control")
    return {} if hint is None else {"cache": without_nones(ttl=fields(hint, "cache_control").get("ttl"))}


def _read_url(kind: str, *more: str, **spelled: str) -> Callable[[Json, str, dict[str, str]], Json]:
    """Return a reader of parts of `kind` at a URL, which may have the fields `more`.

    It records `spelled` as the variant.
    """

    def read(part: Json, path: str, spelling: dict[str, str]) -> Json:
        spelling |= spelled
        place = f"{path}.{part['type']}"
        source = fields(part.get(part["type"]), place)
        found = _of_url(text(source.get("url"), f"{place}.url"))
        return {"type": kind, **found, **without_nones(**{name: source.get(name) for name in more})}

    return read


_read_image_url: Final = _read_url("image", "detail", image="object")


def _read_image(part: Json, path: str, spelling: dict[str, str]) -> Json:
    if not isinstance(part.get("image_url"), str):
        return _read_image_url(part, path, spelling)
    spelling["image"] = "text"
    return {"type": "image", **_of_url(part["image_url"])}


def _read_audio(part: Json, path: str, spelling: dict[str, str]) -> Json:
    if isinstance(part.get("input_audio"), str):
        spelling["audio"] = "text"
        return _by_value({"type": "audio"}, part["input_audio"])
    spelling["audio"] = "input_audio"
    sound = fields(part.get("input_audio"), f"{path}.input_audio")
    return {"type": "audio", "data": sound.get("data"), "media_type": f"audio/{sound.get('format')}"}


def _read_file(part: Json, path: str, spelling: dict[str, str]) -> Json:
    if part.get("file_id") is not None:
        spelling["document"] = "file_id"
        return {"type": "document", "file_id": part["file_id"]}
    spelling["document"] = "file"
    file = fields(part.get("file"), f"{path}.file")
    made = {"type": "document", **without_nones(name=file.get("filename"), file_id=file.get("file_id"))}
    if file.get("file_data") is not None:
        made = _by_value(made, text(file["file_data"], f"{path}.file.file_data"))
    return made


def _by_value(made: Json, value: str) -> Json:
    """Return a part with the content or target of an address, else with the text as its bytes."""
    found = _of_url(value)
    is_address = found.get("url", "").startswith(("http:", "https:", "data:"))
    return made | (found if "data" in found or is_address else {"data": value})


def _read_file_url(part: Json, path: str, spelling: dict[str, str]) -> Json:
    spelling["document"] = "file_url"
    source = fields(part.get("file_url"), f"{path}.file_url")
    return _by_value({"type": "document"}, text(source.get("url"), f"{path}.file_url.url"))


def _read_document(part: Json, path: str, spelling: dict[str, str]) -> Json:
    spelling["document"] = "document_url"
    url = text(part.get("document_url"), f"{path}.document_url")
    return {"type": "document", **_of_url(url), **without_nones(name=part.get("document_name"))}


def _read_thinking(part: Json, path: str, spelling: dict[str, str]) -> Json:
    spelling["thoughts"] = "content"
    pieces = objects(part.get("thinking"), f"{path}.thinking")
    thought = "".join(text(piece.get("text"), path) for piece in pieces)
    return {"type": "thinking", "text": thought, **without_nones(closed=part.get("closed"))}


_READERS: Final[dict[str, Callable[[Json, str, dict[str, str]], Json]]] = {
    "text": lambda part, path, _: {"type": "text", "text": text(part.get("text"), f"{path}.text")},
    "image_url": _read_image,
    "input_audio": _read_audio,
    "audio_url": _read_url("audio", audio="audio_url"),
    "video_url": _read_url("video", "fps"),
    "file": _read_file,
    "file_url": _read_file_url,
    "document_url": _read_document,
    "thinking": _read_thinking,
    "refusal": lambda part, path, _: {
        "type": "refusal",
        "text": text(part.get("refusal"), f"{path}.refusal"),
    },
}
