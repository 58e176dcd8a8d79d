"""The messages of a request and the parts of their content, mapped from OpenAI's form to `llm.chat`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from hearthnet.core.canonical_json import read_json
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
    mapper = _PART_MAPPERS.get(part.type)
    if mapper is None:
        known = ", ".join(_PART_MAPPERS)
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


_PART_MAPPERS: Final[dict[str, Callable[[ContentPart], Part | None]]] = {
    "text": _text,
    "image_url": _image,
    "input_audio": _audio,
    "file": _document,
    "refusal": _refusal,
}


class CalledFunction(msgspec.Struct):
    """The function of a call; `arguments` is JSON text, as the model wrote it."""

    name: str
    arguments: str = ""


class CalledCustom(msgspec.Struct):
    """A call of a tool that takes one text."""

    name: str
    input: str = ""


class AssistantCall(msgspec.Struct):
    """One call of an assistant's message."""

    id: str
    type: str = "function"
    function: CalledFunction | None = None
    custom: CalledCustom | None = None


class ChatMessage(msgspec.Struct):
    """One received message."""

    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[AssistantCall] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None


Message = dict[str, Any]
_ARGUMENTS: Final = msgspec.json.Decoder(dict[str, Any])


def read_messages(messages: list[ChatMessage]) -> list[Message]:
    """Return the conversation as `llm.chat` takes it.

    Raises:
        HearthNetError: `bad_request` with the path of a message that cannot be read.
    """
    return [_message(message, f"/messages/{place}") for place, message in enumerate(messages)]


def has_images(messages: list[Message]) -> bool:
    """Return whether a message contains an image."""
    parts = (part for message in messages for part in parts_of(message))
    return any(part["type"] == "image" for part in parts)


def parts_of(message: Message) -> list[dict[str, Any]]:
    """Return the parts of a mapped message, none where its content is text."""
    content = message.get("content")
    return content if isinstance(content, list) else []


def _message(message: ChatMessage, path: str) -> Message:
    mapper = _MAPPERS.get(message.role)
    if mapper is None:
        raise invalid_part(
            f"there is no role {message.role[:40]!r}; write one of: {', '.join(_MAPPERS)}", f"{path}/role"
        )
    named = {} if message.name is None else {"name": message.name}
    return mapper(message, path) | named


def _content(message: ChatMessage, path: str) -> str | list[dict[str, Any]] | None:
    content = message.content
    if not isinstance(content, list):
        return content
    return [read_part(part, f"{path}/content/{place}") for place, part in enumerate(content)]


def _required_content(message: ChatMessage, path: str) -> str | list[dict[str, Any]]:
    content = _content(message, path)
    if content is None:
        raise invalid_part(f"a message of role {message.role} needs its content", f"{path}/content")
    return content


def _system(message: ChatMessage, path: str) -> Message:
    return {"role": "system", "content": _required_content(message, path)}


def _user(message: ChatMessage, path: str) -> Message:
    return {"role": "user", "content": _required_content(message, path)}


def _tool(message: ChatMessage, path: str) -> Message:
    if not message.tool_call_id:
        raise invalid_part("a tool's message names the call that it answers", f"{path}/tool_call_id")
    return {"role": "tool", "content": _required_content(message, path), "tool_call_id": message.tool_call_id}


def _assistant(message: ChatMessage, path: str) -> Message:
    content = _content(message, path)
    calls = [
        _called(call, f"{path}/tool_calls/{place}") for place, call in enumerate(message.tool_calls or [])
    ]
    read: Message = {"role": "assistant"}
    if content is not None:
        read["content"] = content
    if calls:
        read["tool_calls"] = calls
    if message.refusal:
        read["refusal"] = message.refusal
    return read


def _called(call: AssistantCall, path: str) -> dict[str, Any]:
    if call.custom is not None:
        return {"id": call.id, "name": call.custom.name, "arguments": {"input": call.custom.input}}
    if call.function is None:
        raise invalid_part(f"a call of type {call.type[:40]!r} cannot be read here", path)
    return {
        "id": call.id,
        "name": call.function.name,
        "arguments": _arguments(call.function.arguments, f"{path}/function/arguments"),
    }


def _arguments(text: str, path: str) -> dict[str, Any]:
    """Return the arguments as an object; an empty text, as some clients send, is an empty one."""
    if not text.strip():
        return {}
    try:
        return read_json(text.encode("utf-8", "surrogatepass"), _ARGUMENTS)
    except HearthNetError as error:
        raise invalid_part(f"the arguments are no JSON object: {error.message}", path) from error


_MAPPERS: Final[dict[str, Callable[[ChatMessage, str], Message]]] = {
    "system": _system,
    "developer": _system,
    "user": _user,
    "assistant": _assistant,
    "tool": _tool,
}
