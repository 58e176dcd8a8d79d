"""Messages: text and images apart, thoughts in a field, calls whose ids may be missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hearthnet_llm.interface.content_parts import (
    DocumentPart,
    ImagePart,
    JsonPart,
    Part,
    RefusalPart,
    TextPart,
    ThinkingPart,
)
from hearthnet_llm.interface.frames import ToolCall
from hearthnet_llm.interface.request import Message
from hearthnet_llm.vendors.calls import Pairing, is_made_up
from hearthnet_llm.vendors.json_access import as_text, fields, objects, refuse, text
from hearthnet_llm.vendors.role_alternation import message_parts
from hearthnet_llm.vendors.wire import Json

ERROR_MARK: Final = "ERROR: "
_ROLES: Final = ("system", "user", "assistant", "tool")
_LEFT_OUT: Final = (
    "call", "server_call", "server_result", "tool_reference", "thinking", "summary", "model_change",
    "tool_listing", "tool_change",
)  # fmt: skip


def write(messages: list[Message], spelling: Mapping[str, str]) -> list[Json]:
    """Return the native messages."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    return [_write(message, names, spelling) for message in messages]


def _write(message: Message, names: dict[str, str], spelling: Mapping[str, str]) -> Json:
    parts = message_parts(message)
    thought = "".join(part.text or "" for part in parts if isinstance(part, ThinkingPart) and _is_plain(part))
    body: Json = {"role": message.role, **_content(message, parts, spelling)}
    if thought or (message.thinking and spelling.get("no_thought") == "empty"):
        body["thinking"] = thought
    if message.role == "tool":
        body |= _answer(message, names, spelling)
    if message.tool_calls or _empty_calls(message, spelling):
        body["tool_calls"] = [_call(call, place, spelling) for place, call in enumerate(message.tool_calls)]
    return body


def _empty_calls(message: Message, spelling: Mapping[str, str]) -> bool:
    """Return whether the message has a list of no calls."""
    where = spelling.get("no_calls")
    return where == "everywhere" or (where == "empty" and message.role == "assistant")


def _content(message: Message, parts: list[Part], spelling: Mapping[str, str]) -> Json:
    images = [_image(part) for part in parts if isinstance(part, ImagePart)]
    looked_at = {"images": images} if images or spelling.get("no_images") == "empty" else {}
    texts = [text for part in parts if (text := _text(part)) is not None]
    if message.content is None or (images and not texts and spelling.get("no_text") == "absent"):
        return looked_at
    content = "\n".join(texts)
    marked = ERROR_MARK + content if message.role == "tool" and message.is_error else content
    return {"content": marked, **looked_at}


def _text(part: Part) -> str | None:
    """Return the text of a part, or None if it has a field of its own or is another vendor's."""
    if isinstance(part, TextPart | RefusalPart):
        return part.text
    if isinstance(part, JsonPart):
        return as_text(part.value)
    if isinstance(part, DocumentPart) and part.text is not None:
        return part.text
    kind = str(part.__struct_config__.tag)
    if isinstance(part, ImagePart) or kind in _LEFT_OUT:
        return None
    refuse("/input/messages", f"Ollama takes no {kind}")


def _image(part: ImagePart) -> str:
    if part.data is None:
        refuse("/input/messages", "Ollama takes images as bytes alone")
    return part.data


def _is_plain(part: ThinkingPart) -> bool:
    return part.data is None and part.kind in (None, "text")


def _answer(message: Message, names: dict[str, str], spelling: Mapping[str, str]) -> Json:
    """Return the fields that identify the call of a result.

    These are the tool's name, and the call's id if the vendor gave one.
    """
    known = str(message.tool_call_id)
    name = message.name or (None if spelling.get("results") == "some" else names.get(known))
    field = spelling.get("result_name", "tool_name")
    named = {} if field == "none" or name is None else {field: name}
    return named if _is_ours(known, spelling) else {**named, "tool_call_id": known}


def _is_ours(known: str, spelling: Mapping[str, str]) -> bool:
    return is_made_up(known) and spelling.get("call_ids") != "all"


def _call(call: ToolCall, place: int, spelling: Mapping[str, str]) -> Json:
    kind = {"type": "function"} if spelling.get("call_type") == "function" else {}
    identity = {} if _is_ours(call.id, spelling) else {"id": call.id}
    index = {"none": {}, "zero": {"index": 0}}.get(spelling.get("call_index", "none"), {"index": place})
    return {**kind, **identity, "function": {**index, "name": call.name, "arguments": call.arguments}}


def read(native: Any, spelling: dict[str, str]) -> list[Message]:
    """Return the messages of a native body; records their variants in `spelling`."""
    pairing = Pairing()
    listed = objects(native, "messages")
    return [_read(one, f"messages[{place}]", pairing, spelling) for place, one in enumerate(listed)]


def _read(native: Json, where: str, pairing: Pairing, spelling: dict[str, str]) -> Message:
    role = text(native.get("role"), f"{where}.role")
    if role not in _ROLES:
        refuse(f"{where}.role", f"{role!r} is no role of this wire")
    calls = [
        _read_call(one, f"{where}.tool_calls[{place}]", place, pairing, spelling)
        for place, one in enumerate(objects(native.get("tool_calls"), f"{where}.tool_calls"))
    ]
    _note_empty(native, role, spelling)
    if role == "assistant":
        pairing.asked(calls)
    thought = native.get("thinking")
    field = next((one for one in ("tool_name", "name") if native.get(one) is not None), "none")
    name = native.get(field) if role == "tool" else None
    if role == "tool":
        _note_name(field, spelling)
    return Message(
        role=role,  # type: ignore[arg-type]
        content=_read_content(native, where),
        tool_calls=calls,
        tool_call_id=pairing.answered(native.get("tool_call_id"), name) if role == "tool" else None,
        name=name,
        thinking=None if thought is None else [ThinkingPart(text(thought, f"{where}.thinking"))],
    )


def _note_empty(native: Json, role: str, spelling: dict[str, str]) -> None:
    """Record in which messages empty lists and texts replace missing ones."""
    if native.get("tool_calls") == [] and spelling.get("no_calls") != "everywhere":
        spelling["no_calls"] = "empty" if role == "assistant" else "everywhere"
    if native.get("images") == []:
        spelling["no_images"] = "empty"
    if native.get("thinking") == "":
        spelling["no_thought"] = "empty"
    if native.get("images") and native.get("content") is None:
        spelling["no_text"] = "absent"


def _note_name(field: str, spelling: dict[str, str]) -> None:
    """Record the field in which results name their tool, and whether only some do."""
    before = spelling.get("result_name", field)
    if "none" in (before, field) and before != field:
        spelling["results"] = "some"
    spelling["result_name"] = before if field == "none" else field


def _read_content(native: Json, where: str) -> str | list[Part] | None:
    content = native.get("content")
    images = native.get("images")
    if not images:
        return content if content is None else text(content, f"{where}.content")
    parts: list[Part] = [TextPart(content)] if content else []
    return [*parts, *(ImagePart(text(image, f"{where}.images")) for image in images)]


def _read_call(native: Json, where: str, place: int, pairing: Pairing, spelling: dict[str, str]) -> ToolCall:
    function = fields(native.get("function"), f"{where}.function")
    if native.get("type") is not None:
        spelling["call_type"] = "function"
    index = function.get("index")
    if index is not None and spelling.get("call_index") != "zero":
        spelling["call_index"] = "zero" if index == 0 and place else "index"
    if is_made_up(str(native.get("id"))):
        spelling["call_ids"] = "all"
    name = text(function.get("name"), f"{where}.function.name")
    return ToolCall(pairing.called(native.get("id")), name, function.get("arguments") or {})
