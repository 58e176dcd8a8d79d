"""The messages of a request, mapped from OpenAI's form to `llm.chat` by role."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from hearthnet.core.canonical_json import read_json
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.openai.parts import ContentPart, invalid_part, read_part


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


def shows_images(messages: list[Message]) -> bool:
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


def _said(message: ChatMessage, path: str) -> str | list[dict[str, Any]]:
    content = _content(message, path)
    if content is None:
        raise invalid_part(f"a message of role {message.role} needs its content", f"{path}/content")
    return content


def _system(message: ChatMessage, path: str) -> Message:
    return {"role": "system", "content": _said(message, path)}


def _user(message: ChatMessage, path: str) -> Message:
    return {"role": "user", "content": _said(message, path)}


def _tool(message: ChatMessage, path: str) -> Message:
    if not message.tool_call_id:
        raise invalid_part("a tool's message names the call that it answers", f"{path}/tool_call_id")
    return {"role": "tool", "content": _said(message, path), "tool_call_id": message.tool_call_id}


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
