"""Messages: turns of blocks, with results of tools among the user's content.

A thought is sent only with a signature of this vendor. Thoughts of other vendors are left out, and so is an
assistant message without content, which this vendor refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hearthnet_llm.interface.content_parts import (
    Part,
    ThinkingPart,
)
from hearthnet_llm.interface.frames import ToolCall
from hearthnet_llm.interface.request import Message
from hearthnet_llm.vendors.anthropic import blocks
from hearthnet_llm.vendors.calls import plain_id
from hearthnet_llm.vendors.json_access import entries, fields, refuse, text, without_nones
from hearthnet_llm.vendors.role_alternation import (
    assistant_message,
    group_turns,
    marked,
    may_return,
    message_parts,
    user_messages,
)
from hearthnet_llm.vendors.wire import Json

FORMAT: Final = "anthropic"


def write(messages: list[Message], spelling: Mapping[str, str]) -> Json:
    """Return the field `messages`, and `system` if there is such a message."""
    first = next((place for place, one in enumerate(messages) if not _is_first(one)), len(messages))
    body: Json = {}
    if first:
        body["system"] = _write_system(messages[:first])
    sets = {call.id: call.toolset for message in messages for call in message.tool_calls}
    written = (_write_turn(turn, spelling, sets) for turn in group_turns(messages[first:]))
    body["messages"] = [turn for turn in written if turn["content"] or turn["role"] != "assistant"]
    return body


def _is_first(message: Message) -> bool:
    """Return whether a message belongs to the field `system` instead of the conversation."""
    return message.role == "system" and message.turn is None


def _write_system(messages: list[Message]) -> str | list[Json]:
    if len(messages) == 1 and isinstance(messages[0].content, str):
        return messages[0].content
    return [blocks.write(part, {}) for message in messages for part in message_parts(message)]


def _write_turn(turn: list[Message], spelling: Mapping[str, str], sets: Mapping[str, str | None]) -> Json:
    first = turn[0]
    role = "user" if first.role == "tool" else first.role
    if len(turn) == 1 and isinstance(first.content, str) and _is_plain(first):
        return {"role": role, "content": first.content, **_beside(first)}
    content: list[Json] = []
    for message in turn:
        if message.role == "tool":
            result = _write_result(message, spelling.get("empty_result", "absent"))
            content.append(result | without_nones(toolset_name=sets.get(str(message.tool_call_id))))
        else:
            content += _write_parts(message, spelling.get("unproved") == "sent")
    return {"role": role, "content": content, **_beside(first)}


def _beside(message: Message) -> Json:
    """Return the fields of a system message other than its content."""
    effort = None if message.effort is None else {"effort": message.effort}
    return without_nones(clear_at=message.shown, output_config=effort)


def _write_parts(message: Message, unproved: bool) -> list[Json]:
    calls = {call.id: call for call in message.tool_calls}
    returned = [part for part in message_parts(message) if may_return(part, FORMAT)]
    made = [blocks.write(part, calls) for part in returned if unproved or not _is_unproved(part)]
    if made:
        made[-1] |= blocks.cached(message.cache)
    return made


def _is_plain(message: Message) -> bool:
    return message.role != "tool" and not (message.tool_calls or message.thinking or message.cache)


def _write_result(message: Message, empty_result: str) -> Json:
    content: Any = message.content
    if isinstance(content, list):
        content = [blocks.write(part, {}) for part in content]
    if content == [] and empty_result == "absent":
        content = None
    more = without_nones(content=content, is_error=message.is_error)
    result = {"type": "tool_result", "tool_use_id": plain_id(str(message.tool_call_id)), **more}
    return {**result, **blocks.cached(message.cache)}


def read(body: Json, spelling: dict[str, str]) -> list[Message]:
    """Return the messages of a native body.

    Records in `spelling` how an empty result was written. A system message at the beginning of the
    conversation itself is a turn of its own.
    """
    system, native = body.get("system"), entries(body.get("messages"), "messages")
    made = [] if system is None else [Message(role="system", content=_read_content(system, "system"))]
    conversation = marked(_read_turn(one, path, spelling) for one, path in native)
    if conversation and _is_first(conversation[0]):
        conversation[0] = msgspec.structs.replace(conversation[0], turn="new")
    if any(_is_unproved(part) for one in conversation for part in message_parts(one)):
        spelling["unproved"] = "sent"
    return [*made, *conversation]


def _is_unproved(part: Part) -> bool:
    return isinstance(part, ThinkingPart) and part.signature is None and part.data is None


def _read_content(content: Any, where: str) -> str | list[Part]:
    if isinstance(content, str):
        return content
    return [blocks.read(block, path) for block, path in entries(content, where)]


def _read_turn(native: Json, where: str, spelling: dict[str, str]) -> list[Message]:
    role, content = text(native.get("role"), f"{where}.role"), native.get("content")
    match role:
        case "assistant":
            return [_read_assistant(content, f"{where}.content")]
        case "system":
            config = fields(native.get("output_config") or {}, f"{where}.output_config")
            words = _read_content(content, f"{where}.content")
            effort = config.get("effort")
            return [Message(role="system", content=words, effort=effort, shown=native.get("clear_at"))]
        case "user":
            return _read_user(content, f"{where}.content", spelling)
        case _:
            refuse(f"{where}.role", f"{role!r} is no role of this wire")


def _read_user(content: Any, where: str, spelling: dict[str, str]) -> list[Message]:
    if isinstance(content, str):
        return [Message(role="user", content=content)]
    return user_messages(
        _read_result(block, path, spelling)
        if block.get("type") == "tool_result"
        else blocks.read(block, path)
        for block, path in entries(content, where)
    )


def _read_result(block: Json, where: str, spelling: dict[str, str]) -> Message:
    content = block.get("content")
    if content == []:
        spelling["empty_result"] = "empty"
    return Message(
        role="tool",
        content=[] if content is None else _read_content(content, f"{where}.content"),
        tool_call_id=text(block.get("tool_use_id"), f"{where}.tool_use_id"),
        is_error=block.get("is_error"),
        cache=blocks.hint(fields(block, where)),
    )


def _read_assistant(content: Any, where: str) -> Message:
    if isinstance(content, str):
        return Message(role="assistant", content=content)
    return assistant_message(
        _read_call(block, path) if block.get("type") == "tool_use" else blocks.read(block, path)
        for block, path in entries(content, where)
    )


def _read_call(block: Json, path: str) -> ToolCall:
    for name in ("id", "name"):
        text(block.get(name), f"{path}.{name}")
    return blocks.read_struct(ToolCall, block)
