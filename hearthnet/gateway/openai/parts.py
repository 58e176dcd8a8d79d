"""The parts of a message's content, mapped from OpenAI's form to `llm.chat` by type."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from hearthnet.core.errors import HearthNetError

_DATA_URL: Final = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+)?(?:;[\w.=+-]+)*?;base64,", re.ASCII)
_LONGEST_HEAD: Final = 200
_AUDIO: Final = {"wav": "audio/wav", "mp3": "audio/mpeg"}

Part = dict[str, Any]


class _ImageUrl(msgspec.Struct):
    url: str
    detail: str | None = None


class _InputAudio(msgspec.Struct):
    data: str
    format: str


class _FileContent(msgspec.Struct):
    file_data: str | None = None
    file_id: str | None = None
    filename: str | None = None


class ContentPart(msgspec.Struct):
    """One received part; its `type` determines which members it has."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: _ImageUrl | None = None
    input_audio: _InputAudio | None = None
    file: _FileContent | None = None


def invalid_part(message: str, path: str, rule: str = "") -> HearthNetError:
    """Return the error for the member at `path` (a JSON pointer) of the request."""
    return HearthNetError("bad_request", message, details={"path": path, **({"rule": rule} if rule else {})})


def read_part(part: ContentPart, path: str) -> Part:
    """Return `part` as `llm.chat` takes it.

    Raises:
        HearthNetError: `bad_request` for an unknown type, or a part without the member of its type.
    """
    mapper = _MAPPERS.get(part.type)
    if mapper is None:
        known = ", ".join(_MAPPERS)
        raise invalid_part(f"a part of type {part.type[:40]!r} cannot be read here; there are: {known}", path)
    read = mapper(part)
    if read is None:
        raise invalid_part(
            f"a part of type {part.type!r} needs its member {part.type!r}", f"{path}/{part.type}"
        )
    return read


def _text(part: ContentPart) -> Part | None:
    return None if part.text is None else {"type": "text", "text": part.text}


def _refusal(part: ContentPart) -> Part | None:
    return None if part.refusal is None else {"type": "refusal", "text": part.refusal}


def _image(part: ContentPart) -> Part | None:
    given = part.image_url
    if given is None:
        return None
    detail = {} if given.detail is None else {"detail": given.detail}
    return {"type": "image", **_place(given.url), **detail}


def _audio(part: ContentPart) -> Part | None:
    given = part.input_audio
    if given is None:
        return None
    return {"type": "audio", "data": given.data, "media_type": _AUDIO.get(given.format, given.format)}


def _document(part: ContentPart) -> Part | None:
    given = part.file
    if given is None or (given.file_data is None and given.file_id is None):
        return None
    name = {} if given.filename is None else {"name": given.filename}
    if given.file_data is None:
        return {"type": "document", "file_id": given.file_id, **name}
    return {"type": "document", **_place(given.file_data, plain="data"), **name}


def _place(url: str, plain: str = "url") -> dict[str, str]:
    """Return the content of a data URL with its type; for any other URL, the URL as `plain`."""
    head = _DATA_URL.match(url, 0, _LONGEST_HEAD)
    if head is None:
        return {plain: url}
    kind = {} if head["type"] is None else {"media_type": head["type"]}
    return {"data": url[head.end() :], **kind}


_MAPPERS: Final[dict[str, Callable[[ContentPart], Part | None]]] = {
    "text": _text,
    "image_url": _image,
    "input_audio": _audio,
    "file": _document,
    "refusal": _refusal,
}
