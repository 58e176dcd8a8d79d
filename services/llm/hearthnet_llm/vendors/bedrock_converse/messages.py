"""Messages: turns of blocks, with results of tools among the user's content.

A thought is sent only to the vendor that made it. Thoughts of other vendors are left out, and so is an
assistant message without content, which this vendor refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from hearthnet_llm.interface.content_parts import (
    Part,
    TextPart,
)
from hearthnet_llm.interface.frames import ToolCall
from hearthnet_llm.interface.request import Message
from hearthnet_llm.vendors.bedrock_converse import blocks
from hearthnet_llm.vendors.calls import plain_id
from hearthnet_llm.vendors.json_access import entries, fields, refuse, text
from hearthnet_llm.vendors.role_alternation import (
    assistant_message,
    group_turns,
    marked,
    may_return,
    message_parts,
    user_messages,
)
from hearthnet_llm.vendors.wire import Json

FORMAT: Final = "converse"


def write(messages: list[Message], spelling: Mapping[str, str]) -> Json:
    """Return the field `messages`, and `system` if there is such a message."""
    system = [message for message in messages if _is_system(message)]
    rest = [message for message in messages if not _is_system(message)]
    written = (_write_turn(turn, spelling) for turn in group_turns(rest))
    body: Json = {"messages": [one for one in written if one["content"] or one["role"] != "assistant"]}
    if system:
        body["system"] = [block for message in system for block in _write_parts(message, spelling)]
    return body


def _is_system(message: Message) -> bool:
    """Return whether a message belongs to the field `system`: not if it is a turn of its own."""
    return message.role == "system" and message.turn is None


def _write_turn(turn: list[Message], spelling: Mapping[str, str]) -> Json:
    role = turn[0].role if turn[0].role in ("assistant", "system") else "user"
    content: list[Json] = []
    for message in turn:
        content += _write_result(message) if message.role == "tool" else _write_parts(message, spelling)
    return {"role": role, "content": content}


def _write_parts(message: Message, spelling: Mapping[str, str]) -> list[Json]:
    calls = {call.id: call for call in message.tool_calls}
    parts = [part for part in message_parts(message) if may_return(part, FORMAT)]
    made = [block for part in parts for block in blocks.write(part, calls, spelling)]
    return [*made, *blocks.cached(message.cache)]


def _write_result(message: Message) -> list[Json]:
    content = message.content
    parts: list[Part] = [TextPart(content)] if isinstance(content, str) else [*(content or ())]
    result: Json = {
        "toolUseId": plain_id(str(message.tool_call_id)),
        "content": [block for part in parts for block in blocks.write_result(part)],
    }
    if message.is_error is not None:
        result["status"] = blocks.STATUS[message.is_error]
    return [{"toolResult": result}, *blocks.cached(message.cache)]


def read(body: Json, spelling: dict[str, str]) -> list[Message]:
    """Return the messages of a native body; records the variant of its calls in `spelling`."""
    system, native = body.get("system"), entries(body.get("messages"), "messages")
    made = [] if system is None else [Message(role="system", content=blocks.read_all(system, "system"))]
    return [*made, *marked(_read_turn(one, path, spelling) for one, path in native)]


def _read_turn(native: Json, where: str, spelling: dict[str, str]) -> list[Message]:
    role = text(native.get("role"), f"{where}.role")
    content, path = native.get("content"), f"{where}.content"
    if role == "assistant":
        reader = partial(_read_assistants, spelling=spelling)
        return [assistant_message(blocks.read_all(content, path, reader))]
    if role == "system":
        return [Message(role="system", content=blocks.read_all(content, path), turn="new")]
    if role != "user":
        refuse(f"{where}.role", f"{role!r} is no role of this wire")
    return user_messages(blocks.read_all(content, path, _read_users))


def _read_users(block: Json, where: str) -> Part | Message:
    """Return a result, or another part of a user's content."""
    if "toolResult" not in block:
        return blocks.read(block, where)
    native = fields(block["toolResult"], f"{where}.toolResult")
    return Message(
        role="tool",
        content=blocks.read_all(native.get("content"), f"{where}.toolResult.content"),
        tool_call_id=text(native.get("toolUseId"), f"{where}.toolResult.toolUseId"),
        is_error=blocks.failed(native.get("status")),
    )


def _read_assistants(block: Json, where: str, spelling: dict[str, str]) -> Part | ToolCall:
    """Return a call, or another part of an assistant's content."""
    used: Any = block.get("toolUse")
    if not isinstance(used, dict) or used.get("type") == blocks.SERVED:
        return blocks.read(block, where)
    if used.get("type") == blocks.CALLED:
        spelling["call_type"] = blocks.CALLED
    return _read_call(used, f"{where}.toolUse")


def _read_call(native: Json, where: str) -> ToolCall:
    identity = text(native.get("toolUseId"), f"{where}.toolUseId")
    return ToolCall(identity, text(native.get("name"), f"{where}.name"), native.get("input") or {})


def has_calls(messages: list[Message]) -> bool:
    """Return whether tools were called, in which case the vendor requires their declarations."""
    return any(message.tool_calls or message.role == "tool" for message in messages)
