"""Conversion of native messages to canonical ones.

Calls without ids, as in the older form, get generated ones.
"""

from __future__ import annotations

import json
from typing import Any, Final

from hearthnet_llm.vendors.json_access import fields, objects, refuse, text, without_nones
from hearthnet_llm.vendors.openai import citations, custom, reasoning
from hearthnet_llm.vendors.openai.messages import ERROR_MARK
from hearthnet_llm.vendors.openai.parts_read import read_cache, read_content, read_voice
from hearthnet_llm.vendors.wire import Json

_ROLES: Final = {"developer": "system", "function": "tool"}


def read_messages(native: Any, spelling: dict[str, str]) -> list[Json]:
    """Return the canonical messages as JSON; records their variants in `spelling`."""
    made: list[Json] = []
    waiting: list[str] = []
    for index, message in enumerate(objects(native, "messages")):
        path = f"messages[{index}]"
        read = _read(message, path, spelling)
        if message.get("function_call") is not None:
            call = fields(message["function_call"], f"{path}.function_call")
            read["tool_calls"] = [_function(call, f"{path}.function_call", spelling)]
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
    given = read.get("tool_call_id") or next(iter(waiting), "call_0")
    if given in waiting:
        waiting.remove(given)
    read["tool_call_id"] = given


def _read(message: Json, path: str, spelling: dict[str, str]) -> Json:
    role = text(message.get("role"), f"{path}.role")
    made: Json = {"role": _ROLES.get(role, role)}
    if made["role"] == "system":
        spelling["system"] = role
    made |= without_nones(
        content=_content(message, made["role"], path, spelling),
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
    return made | _calls(message, path, spelling) | read_cache(message)


def _content(message: Json, role: str, path: str, spelling: dict[str, str]) -> Any:
    """Return the content; missing content stays missing only for an assistant.

    Others get an empty list.
    """
    given = message.get("content")
    if given == [] or (given is None and role != "assistant"):
        spelling["no_content"] = "null" if given is None else "list"
    if role == "assistant":
        return read_voice(message, read_content(given, f"{path}.content", spelling))
    return read_content([] if given is None else given, f"{path}.content", spelling)


def _unmarked(content: Any) -> Json:
    """Return the result of a failed tool without its mark, or nothing."""
    if isinstance(content, str) and content.startswith(ERROR_MARK):
        return {"content": content.removeprefix(ERROR_MARK), "is_error": True}
    mark = {"type": "text", "text": ERROR_MARK.strip()}
    return (
        {"content": content[1:], "is_error": True}
        if isinstance(content, list) and content[:1] == [mark]
        else {}
    )


def _calls(message: Json, path: str, spelling: dict[str, str]) -> Json:
    calls = objects(message.get("tool_calls"), f"{path}.tool_calls")
    if not calls:
        if message.get("tool_calls") is not None:
            spelling["no_calls"] = "empty"
        return {}
    spelling["call_index"] = _placing([call.get("index") for call in calls], spelling)
    return {
        "tool_calls": [
            _call(call, f"{path}.tool_calls[{index}]", spelling) for index, call in enumerate(calls)
        ]
    }


def _placing(indexes: list[Any], spelling: dict[str, str]) -> str:
    """Return whether calls have their index, or always a 0, or none."""
    if indexes[0] is None:
        return "none"
    return "zero" if len(indexes) > 1 and not any(indexes) else spelling.get("call_index", "index")


def _call(call: Json, path: str, spelling: dict[str, str]) -> Json:
    given = call.get("id")
    spelling["ids"] = "sent" if given else "left_out" if given is None else "empty"
    if call.get("type") == custom.KIND:
        return {**without_nones(id=given), **custom.read_call(call, path)}
    return {
        **without_nones(id=given),
        **_function(fields(call.get("function"), f"{path}.function"), f"{path}.function", spelling),
        **without_nones(signature=reasoning.read_signature(call, spelling)),
    }


def _function(function: Json, path: str, spelling: dict[str, str]) -> Json:
    given = function.get("arguments")
    try:
        arguments = json.loads(given or "{}") if isinstance(given, str | None) else given
    except ValueError:
        refuse(f"{path}.arguments", "is no JSON")
    spelling["arguments"] = "object" if isinstance(given, dict) else "text"
    if not arguments:
        spelling["no_arguments"] = "unsaid" if given is None else "null" if arguments is None else "object"
    return {"name": function.get("name"), "arguments": {} if arguments is None else arguments}
