"""Conversion of canonical content parts to native ones: one small writer a kind."""

from __future__ import annotations

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
from hearthnet_llm.vendors import media
from hearthnet_llm.vendors.json_access import as_text, refuse, without_nones
from hearthnet_llm.vendors.openai.dialect import Choices
from hearthnet_llm.vendors.wire import Json

_UNHEARD: Final = (CallPart, *get_args(ServerPart), ToolReferencePart, ToolChangePart)
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


def write_content(content: str | list[Part] | None, choices: Choices) -> str | list[Json] | None:
    """Return the native content, with thoughts only if the vendor keeps them in it."""
    if content is None or isinstance(content, str):
        return content
    left_out = _UNHEARD if choices["thoughts"] == "content" else (*_UNHEARD, ThinkingPart)
    heard = (part for part in content if not isinstance(part, left_out))
    made = [write_part(part, choices) for part in heard if not _is_voice(part)]
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


def _text(part: TextPart, _choices: Choices) -> Json:
    return {"type": "text", "text": part.text}


def _image(part: ImagePart, choices: Choices) -> Json:
    url = media.to_url(part)
    if url is None:
        refuse("/input/messages", "an image for this model must be given by value or by URL")
    if choices["image"] == "text":
        return {"type": "image_url", "image_url": url}
    return {"type": "image_url", "image_url": {"url": url, **without_nones(detail=part.detail)}}


def _audio(part: AudioPart, choices: Choices) -> Json:
    if choices["audio"] == "audio_url":
        return {"type": "audio_url", "audio_url": {"url": media.to_url(part)}}
    if choices["audio"] == "text":
        return {"type": "input_audio", "input_audio": media.to_url(part) or part.data}
    if part.data is None:
        refuse("/input/messages", "a recording for this model must be given by value")
    named = (part.media_type or "").removeprefix("audio/")
    sound = {"data": part.data, "format": _SOUNDS.get(named, named)}
    return {"type": "input_audio", "input_audio": sound}


def _video(part: VideoPart, _choices: Choices) -> Json:
    url = media.to_url(part)
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
        return {"type": "file_url", "file_url": {"url": media.to_url(part) or part.data}}
    if choices["document"] == "file_id" and part.file_id is not None:
        return {"type": "file", "file_id": part.file_id}
    if choices["document"] == "document_url":
        named = without_nones(document_name=part.name)
        return {"type": "document_url", "document_url": media.to_url(part), **named}
    file = without_nones(file_id=part.file_id, filename=part.name)
    if part.file_id is None:
        file["file_data"] = media.to_url(part) or part.data
    return {"type": "file", "file": file}


def _found(part: SearchResultPart, _choices: Choices) -> Json:
    lines = [f"{part.title} ({part.source})", *(one.text for one in part.texts)]
    return {"type": "text", "text": "\n".join(lines)}


def _json(part: JsonPart, _choices: Choices) -> Json:
    return {"type": "text", "text": as_text(part.value)}


def _thinking(part: ThinkingPart, _choices: Choices) -> Json:
    made = {"type": "thinking", "thinking": [{"type": "text", "text": part.text or ""}]}
    return made | without_nones(closed=part.closed)


def _refusal(part: RefusalPart, _choices: Choices) -> Json:
    return {"type": "refusal", "refusal": part.text}


_WRITERS: Final[dict[type, Callable[[Any, Choices], Json]]] = {
    TextPart: _text,
    ImagePart: _image,
    AudioPart: _audio,
    VideoPart: _video,
    DocumentPart: _document,
    SearchResultPart: _found,
    JsonPart: _json,
    ThinkingPart: _thinking,
    RefusalPart: _refusal,
}
