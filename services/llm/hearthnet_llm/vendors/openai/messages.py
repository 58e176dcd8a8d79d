"""Conversion of canonical messages to native ones: roles, calls and their results.

The older form with `function_call` and role `function` has no call ids: they are left out.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Final

from hearthnet_llm.interface.frames import ToolCall
from hearthnet_llm.interface.request import Message
from hearthnet_llm.vendors.json_access import as_text, without_nones
from hearthnet_llm.vendors.openai import citations, custom, reasoning
from hearthnet_llm.vendors.openai.dialect import Choices
from hearthnet_llm.vendors.openai.parts import write_cache, write_content, write_voice
from hearthnet_llm.vendors.wire import Json

ERROR_MARK: Final = "ERROR: "
"""Begins the result of a tool that failed, because this protocol has no field for that."""


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
        return [{"type": "text", "text": ERROR_MARK.strip()}, *content]
    return ERROR_MARK + (content or "")


def _call(call: ToolCall, index: int, choices: Choices, texts: Set[str]) -> Json:
    if call.name in texts and isinstance(call.arguments.get("input"), str):
        called = custom.write_call(call)
    else:
        called = {"type": "function", "function": _function(call, choices)}
    return {
        **_id("id", call.id, choices),
        **called,
        **{"none": {}, "index": {"index": index}, "zero": {"index": 0}}[choices["call_index"]],
        **reasoning.write_signature(call.signature, choices, ("extra_content",)),
    }


def _id(field: str, given: str | None, choices: Choices) -> Json:
    """Return the field of a call's id, for vendors that have it."""
    form = choices["ids"]
    return {} if form == "left_out" else {field: "" if form == "empty" else given}


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
