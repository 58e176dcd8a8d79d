"""Messages: turns of blocks, with results of tools among the user's content.

A thought is sent only to the vendor that made it. Thoughts of other vendors are left out, and so is an
assistant message without content, which this vendor refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hearthnet_llm.interface.content_parts import (
    CallPart,
    Part,
    ServerCallPart,
    ServerResultPart,
    TextPart,
    ThinkingPart,
)
from hearthnet_llm.interface.frames import ToolCall
from hearthnet_llm.interface.request import Message
from hearthnet_llm.vendors.bedrock_converse import blocks
from hearthnet_llm.vendors.calls import plain_id
from hearthnet_llm.vendors.json_access import objects, refuse, text
from hearthnet_llm.vendors.role_alternation import group_turns, marked, message_parts, unplaced
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
    parts = [part for part in message_parts(message) if _belongs_here(part)]
    made = [block for part in parts for block in blocks.write(part, calls, spelling)]
    return [*made, *blocks.cached(message.cache)]


def _belongs_here(part: Part) -> bool:
    if isinstance(part, ServerCallPart | ServerResultPart):
        return part.id is not None
    return not isinstance(part, ThinkingPart) or part.format in (None, FORMAT)


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
    native = objects(body.get("messages"), "messages")
    made = []
    if body.get("system") is not None:
        made = [Message(role="system", content=_read_parts(objects(body["system"], "system"), "system"))]
    read = (_read_turn(one, f"messages[{place}]", spelling) for place, one in enumerate(native))
    return [*made, *marked(read)]


def _read_turn(native: Json, where: str, spelling: dict[str, str]) -> list[Message]:
    role = text(native.get("role"), f"{where}.role")
    content, place = objects(native.get("content"), f"{where}.content"), f"{where}.content"
    if role == "assistant":
        return [_read_assistant(content, place, spelling)]
    if role == "system":
        return [Message(role="system", content=_read_parts(content, place), turn="new")]
    if role != "user":
        refuse(f"{where}.role", f"{role!r} is no role of this wire")
    return _read_user(content, place)


def _read_user(content: list[Json], where: str) -> list[Message]:
    """Return one message for each result and one for each run of user content."""
    made: list[Message] = []
    saying: list[Json] | None = None
    for place, block in enumerate(content):
        if "toolResult" in block:
            made.append(_read_result(block["toolResult"], f"{where}[{place}].toolResult"))
            saying = None
        elif saying is None and made and (cache := blocks.hint(block)) is not None:
            made[-1] = msgspec.structs.replace(made[-1], cache=cache)
        else:
            if saying is None:
                saying = []
                made.append(Message(role="user", content=[]))
            saying.append(block)
            made[-1] = Message(role="user", content=_read_parts(saying, where))
    return made or [Message(role="user", content=[])]


def _read_parts(content: list[Json], where: str) -> list[Part]:
    parts: list[Part] = []
    for place, block in enumerate(content):
        cache = blocks.hint(block)
        if cache is None:
            parts.append(blocks.read(block, f"{where}[{place}]"))
        elif parts:
            parts[-1] = blocks.hinted(parts[-1], cache, f"{where}[{place}]")
        else:
            refuse(f"{where}[{place}]", "a cache point must follow something that can be kept")
    return parts


def _read_result(native: Json, where: str) -> Message:
    content = _read_parts(objects(native.get("content"), f"{where}.content"), f"{where}.content")
    return Message(
        role="tool",
        content=content,
        tool_call_id=text(native.get("toolUseId"), f"{where}.toolUseId"),
        is_error=blocks.failed(native.get("status")),
    )


def _read_assistant(content: list[Json], where: str, spelling: dict[str, str]) -> Message:
    parts: list[Part] = []
    calls: list[ToolCall] = []
    for place, block in enumerate(content):
        used: Any = block.get("toolUse")
        cache = blocks.hint(block)
        if isinstance(used, dict) and used.get("type") != blocks.SERVED:
            calls.append(_read_call(used, f"{where}[{place}].toolUse"))
            if used.get("type") == blocks.CALLED:
                spelling["call_type"] = blocks.CALLED
            parts.append(CallPart(calls[-1].id))
        elif cache is not None and parts and isinstance(parts[-1], CallPart):
            calls[-1] = msgspec.structs.replace(calls[-1], cache=cache)
        elif cache is not None and parts:
            parts[-1] = blocks.hinted(parts[-1], cache, f"{where}[{place}]")
        else:
            parts.append(blocks.read(block, f"{where}[{place}]"))
    said_first = unplaced(parts)
    return Message(
        role="assistant", content=None if calls and not said_first else said_first, tool_calls=calls
    )


def _read_call(native: Json, where: str) -> ToolCall:
    identity = text(native.get("toolUseId"), f"{where}.toolUseId")
    return ToolCall(identity, text(native.get("name"), f"{where}.name"), native.get("input") or {})


def has_calls(messages: list[Message]) -> bool:
    """Return whether tools were called, in which case the vendor requires their declarations."""
    return any(message.tool_calls or message.role == "tool" for message in messages)
