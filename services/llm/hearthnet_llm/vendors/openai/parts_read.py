"""Conversion of native content parts to canonical ones: one small reader a kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hearthnet_llm.vendors import media
from hearthnet_llm.vendors.json_access import fields, objects, refuse, text, without_nones
from hearthnet_llm.vendors.wire import Json


def read_content(content: Any, path: str, spelling: dict[str, str]) -> Any:
    """Return the canonical content."""
    if content is None or isinstance(content, str):
        return content
    found = []
    for index, part in enumerate(objects(content, path)):
        kind = str(part.get("type"))
        reader = _READERS.get(kind)
        if reader is None:
            refuse(f"{path}[{index}].type", f"{kind!r} is no known kind of content")
        found.append({**reader(part, f"{path}[{index}]", spelling), **read_cache(part)})
    return found


def read_voice(message: Json, content: Any) -> Any:
    """Return the `content` of an assistant's message with its spoken answer added."""
    voice = message.get("audio")
    if not isinstance(voice, dict) or voice.get("id") is None:
        return content
    said = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    return [*said, {"type": "audio", "file_id": voice["id"]}]


def read_cache(native: Json) -> Json:
    """Return the canonical cache hint of a native object as a field, or nothing."""
    hint = native.get("cache_control")
    return {} if hint is None else {"cache": without_nones(ttl=fields(hint, "cache_control").get("ttl"))}


def _read_text(part: Json, path: str, _spelling: dict[str, str]) -> Json:
    return {"type": "text", "text": text(part.get("text"), f"{path}.text")}


def _read_image(part: Json, path: str, spelling: dict[str, str]) -> Json:
    image = part.get("image_url")
    if isinstance(image, str):
        spelling["image"] = "text"
        return {"type": "image", **media.of_url(image)}
    spelling["image"] = "object"
    given = fields(image, f"{path}.image_url")
    url = text(given.get("url"), f"{path}.image_url.url")
    return {"type": "image", **media.of_url(url), **without_nones(detail=given.get("detail"))}


def _read_audio(part: Json, path: str, spelling: dict[str, str]) -> Json:
    if isinstance(part.get("input_audio"), str):
        spelling["audio"] = "text"
        return _by_value({"type": "audio"}, part["input_audio"])
    spelling["audio"] = "input_audio"
    sound = fields(part.get("input_audio"), f"{path}.input_audio")
    return {"type": "audio", "data": sound.get("data"), "media_type": f"audio/{sound.get('format')}"}


def _read_video(part: Json, path: str, _spelling: dict[str, str]) -> Json:
    given = fields(part.get("video_url"), f"{path}.video_url")
    url = text(given.get("url"), f"{path}.video_url.url")
    return {"type": "video", **media.of_url(url), **without_nones(fps=given.get("fps"))}


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


def _by_value(made: Json, given: str) -> Json:
    """Return a part with the content or target of an address, else with the text as its bytes."""
    found = media.of_url(given)
    is_address = found.get("url", "").startswith(("http:", "https:", "data:"))
    return made | (found if "data" in found or is_address else {"data": given})


def _read_audio_url(part: Json, path: str, spelling: dict[str, str]) -> Json:
    spelling["audio"] = "audio_url"
    given = fields(part.get("audio_url"), f"{path}.audio_url")
    return {"type": "audio", **media.of_url(text(given.get("url"), f"{path}.audio_url.url"))}


def _read_file_url(part: Json, path: str, spelling: dict[str, str]) -> Json:
    spelling["document"] = "file_url"
    given = fields(part.get("file_url"), f"{path}.file_url")
    return _by_value({"type": "document"}, text(given.get("url"), f"{path}.file_url.url"))


def _read_document(part: Json, path: str, spelling: dict[str, str]) -> Json:
    spelling["document"] = "document_url"
    url = text(part.get("document_url"), f"{path}.document_url")
    return {"type": "document", **media.of_url(url), **without_nones(name=part.get("document_name"))}


def _read_thinking(part: Json, path: str, spelling: dict[str, str]) -> Json:
    spelling["thoughts"] = "content"
    pieces = objects(part.get("thinking"), f"{path}.thinking")
    said = "".join(text(piece.get("text"), path) for piece in pieces)
    return {"type": "thinking", "text": said, **without_nones(closed=part.get("closed"))}


def _read_refusal(part: Json, path: str, _spelling: dict[str, str]) -> Json:
    return {"type": "refusal", "text": text(part.get("refusal"), f"{path}.refusal")}


_READERS: Final[dict[str, Callable[[Json, str, dict[str, str]], Json]]] = {
    "text": _read_text,
    "image_url": _read_image,
    "input_audio": _read_audio,
    "audio_url": _read_audio_url,
    "video_url": _read_video,
    "file": _read_file,
    "file_url": _read_file_url,
    "document_url": _read_document,
    "thinking": _read_thinking,
    "refusal": _read_refusal,
}
