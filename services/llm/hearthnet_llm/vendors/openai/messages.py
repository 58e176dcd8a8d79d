"""Messages in both directions: roles, calls and their results.

The older form with `function_call` and role `function` has no call ids: they are left out when written, and
calls without ids get generated ones when read.
"""

from __future__ import annotations

import json
from collections.abc import Set
from typing import Any, Final

from hearthnet_llm.interface.frames import ToolCall
from hearthnet_llm.interface.request import Message
from hearthnet_llm.vendors.calls import ERROR_MARK
from hearthnet_llm.vendors.json_access import as_text, entries, fields, objects, refuse, text, without_nones
from hearthnet_llm.vendors.openai import citations, reasoning, tools
from hearthnet_llm.vendors.openai.dialect import Choices
from hearthnet_llm.vendors.openai.parts import (
    read_cache,
    read_content,
    read_voice,
    write_cache,
    write_content,
    write_voice,
)
from hearthnet_llm.vendors.wire import Json

_MARK_PART: Final = {"type": "text", "text": ERROR_MARK.strip()}
_ROLES: Final = {"developer": "system", "function": "tool"}


def write_messages(messages: list[Message], choices: Choices, texts: Set[str] = frozenset()) -> list[Json]:
    """Return the native messages; `texts` names the tools that are called with one text."""
    if choices["functions"] == "functions":
        names = {call.id: call.name for message in messages for call in message.tool_calls}
        return [_old(message, names, choices) for message in messages]
    return [_message(message, choices, texts) for message in messages]


def _message(message: Message, choices: Choices, texts: Set[str] = frozenset()) -> Json:
    role = choices["system"] if message.role == "system" else message.role
    body: Json = {"role": role, "content": write_content(message.content, choices)}
    if body["content"] is None and message.role != "assistant" and choices["no_content"] != "null":
        body["content"] = ""  # all of its parts were of other vendors
    body |= write_voice(message)
    citations.write(message, body, choices)
    if message.role == "tool":
        body["content"] = _marked(body["content"]) if message.is_error else body["content"]
        body |= _id("tool_call_id", message.tool_call_id, choices)
    elif message.tool_calls:
        calls = enumerate(message.tool_calls)
        body["tool_calls"] = [_call(call, index, choices, texts) for index, call in calls]
    elif message.role == "assistant" and choices["no_calls"] == "empty":
        body["tool_calls"] = []
    body |= without_nones(name=message.name, refusal=message.refusal)
    body |= without_nones(**{choices["prefix"]: message.prefix})
    return body | reasoning.write(message, choices) | write_cache(message.cache)


def _marked(content: Any) -> Any:
    """Return content that is marked as that of a failed tool."""
    if isinstance(content, list):
        return [{**_MARK_PART}, *content]
    return ERROR_MARK + (content or "")


def _call(call: ToolCall, index: int, choices: Choices, texts: Set[str]) -> Json:
    if call.name in texts and isinstance(call.arguments.get("input"), str):
        called = tools.write_custom_call(call)
    else:
        called = {"type": "function", "function": _function(call, choices)}
    return {
        **_id("id", call.id, choices),
        **called,
        **{"none": {}, "index": {"index": index}, "zero": {"index": 0}}[choices["call_index"]],
        **reasoning.write_signature(call.signature, choices, ("extra_content",)),
    }


def _id(field: str, call_id: str | None, choices: Choices) -> Json:
    """Return the field of a call's id, for vendors that have it."""
    form = choices["ids"]
    return {} if form == "left_out" else {field: "" if form == "empty" else call_id}


def _function(call: ToolCall, choices: Choices) -> Json:
    form = "text" if call.arguments else choices["no_arguments"]
    if form == "unsaid":
        return {"name": call.name}
    if form == "null":
        return {"name": call.name, "arguments": "null"}
    as_object = choices["arguments"] == "object"
    return {"name": call.name, "arguments": call.arguments if as_object else as_text(call.arguments)}


def _old(message: Message, names: dict[str, str], choices: Choices) -> Json:
    """Return a message of the older form, with at most one call, and results by name."""
    body = _message(message, choices)
    if message.role == "tool":
        name = names.get(message.tool_call_id or "", message.name)
        return {"role": "function", "name": name, "content": body["content"]}
    if message.tool_calls:
        del body["tool_calls"]
        body["function_call"] = _function(message.tool_calls[0], choices)
    return body


def read_messages(native: Any, spelling: dict[str, str]) -> list[Json]:
    """Return the canonical messages as JSON; records their variants in `spelling`."""
    made: list[Json] = []
    waiting: list[str] = []
    for index, message in enumerate(objects(native, "messages")):
        path = f"messages[{index}]"
        read = _read_message(message, path, spelling)
        if message.get("function_call") is not None:
            call = fields(message["function_call"], f"{path}.function_call")
            read["tool_calls"] = [_read_function(call, f"{path}.function_call", spelling)]
            spelling["functions"] = "functions"
        elif message.get("role") == "function":
            spelling["functions"] = "functions"
        for place, call in enumerate(read.get("tool_calls", ())):
            call["id"] = call.get("id") or f"call_{index}_{place}"
            waiting.append(call["id"])
        if read["role"] == "tool":
            _answer(read, waiting)
        made.append(read)
    return made


def _answer(read: Json, waiting: list[str]) -> None:
    """Assign a result to a waiting call; one without an id answers the first."""
    call_id = read.get("tool_call_id") or next(iter(waiting), "call_0")
    if call_id in waiting:
        waiting.remove(call_id)
    read["tool_call_id"] = call_id


def _read_message(message: Json, path: str, spelling: dict[str, str]) -> Json:
    role = text(message.get("role"), f"{path}.role")
    made: Json = {"role": _ROLES.get(role, role)}
    if made["role"] == "system":
        spelling["system"] = role
    made |= without_nones(
        content=_read_content(message, made["role"], path, spelling),
        tool_call_id=message.get("tool_call_id"),
        name=message.get("name"),
        refusal=message.get("refusal"),
        thinking=reasoning.read(message, path, spelling),
    )
    citations.read(message, made, path, spelling)
    for name in ("prefix", "partial"):
        if message.get(name) is not None:
            spelling["prefix"], made["prefix"] = name, message[name]
    if made["role"] == "tool":
        made |= _unmarked(made.get("content"))
    return made | _read_calls(message, path, spelling) | read_cache(message)


def _read_content(message: Json, role: str, path: str, spelling: dict[str, str]) -> Any:
    """Return the content; missing content stays missing only for an assistant.

    Others get an empty list.
    """
    content = message.get("content")
    if content == [] or (content is None and role != "assistant"):
        spelling["no_content"] = "null" if content is None else "list"
    if role == "assistant":
        return read_voice(message, read_content(content, f"{path}.content", spelling))
    return read_content([] if content is None else content, f"{path}.content", spelling)


def _unmarked(content: Any) -> Json:
    """Return the result of a failed tool without its mark, or nothing."""
    if isinstance(content, str) and content.startswith(ERROR_MARK):
        return {"content": content.removeprefix(ERROR_MARK), "is_error": True}
    if isinstance(content, list) and content[:1] == [_MARK_PART]:
        return {"content": content[1:], "is_error": True}
    return {}


def _read_calls(message: Json, path: str, spelling: dict[str, str]) -> Json:
    calls = entries(message.get("tool_calls"), f"{path}.tool_calls")
    if not calls:
        if message.get("tool_calls") is not None:
            spelling["no_calls"] = "empty"
        return {}
    spelling["call_index"] = _placing([call.get("index") for call, _ in calls], spelling)
    return {"tool_calls": [_read_call(call, place, spelling) for call, place in calls]}


def _placing(indexes: list[Any], spelling: dict[str, str]) -> str:
    """Return whether calls have their index, or always a 0, or none."""
    if indexes[0] is None:
        return "none"
    return "zero" if len(indexes) > 1 and not any(indexes) else spelling.get("call_index", "index")


def _read_call(call: Json, path: str, spelling: dict[str, str]) -> Json:
    call_id = call.get("id")
    spelling["ids"] = "sent" if call_id else "left_out" if call_id is None else "empty"
    if call.get("type") == tools.CUSTOM:
        return {**without_nones(id=call_id), **tools.read_custom_call(call, path)}
    return {
        **without_nones(id=call_id),
        **_read_function(fields(call.get("function"), f"{path}.function"), f"{path}.function", spelling),
        **without_nones(signature=reasoning.read_signature(call, spelling)),
    }


def _read_function(function: Json, path: str, spelling: dict[str, str]) -> Json:
    native = function.get("arguments")
    try:
        arguments = json.loads(native or "{}") if isinstance(native, str | None) else native
    except ValueError:
        refuse(f"{path}.arguments", "is no JSON")
    spelling["arguments"] = "object" if isinstance(native, dict) else "text"
    if not arguments:
        spelling["no_arguments"] = "unsaid" if native is None else "null" if arguments is None else "object"
    return {"name": function.get("name"), "arguments": {} if arguments is None else arguments}
