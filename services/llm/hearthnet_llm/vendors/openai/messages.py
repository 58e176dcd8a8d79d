"""Messages in both directions: roles, calls and their results, and what the model thought.

The older form with `function_call` and role `function` has no call ids; they are made up when it is read, and
left out again when it is written.
"""

from __future__ import annotations

import json
from typing import Any, Final

from hearthnet_llm.frames import ToolCall
from hearthnet_llm.parts import ThinkingPart
from hearthnet_llm.request import Message
from hearthnet_llm.vendors.openai.parts import write_cache, write_content
from hearthnet_llm.vendors.openai.parts_read import read_cache, read_content
from hearthnet_llm.vendors.openai.spelling import Choices
from hearthnet_llm.vendors.reading import fields, objects, refuse, text, without_nones
from hearthnet_llm.vendors.wire import Json

ERROR_MARK: Final = "ERROR: "
_DETAILS: Final = "reasoning."
_SIGNED: Final = ("extra_content", "google", "thought_signature")


def write_messages(messages: list[Message], choices: Choices) -> list[Json]:
    """The native messages."""
    if choices["functions"] == "functions":
        names = {call.id: call.name for message in messages for call in message.tool_calls}
        return [_old(message, names, choices) for message in messages]
    return [_message(message, choices) for message in messages]


def _message(message: Message, choices: Choices) -> Json:
    role = choices["system"] if message.role == "system" else message.role
    body: Json = {"role": role, "content": write_content(message.content, choices)}
    if message.role == "tool":
        body["content"] = _marked(body["content"]) if message.is_error else body["content"]
        body["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        body["tool_calls"] = [_call(call, index, choices) for index, call in enumerate(message.tool_calls)]
    body |= without_nones(name=message.name, refusal=message.refusal, prefix=message.prefix)
    return body | _thoughts(message, choices) | write_cache(message.cache)


def _marked(content: Any) -> Any:
    """Content that says that the tool failed; this wire has no field for it."""
    if isinstance(content, str):
        return ERROR_MARK + content
    return [{"type": "text", "text": ERROR_MARK.strip()}, *(content or [])]


def _call(call: ToolCall, index: int, choices: Choices) -> Json:
    return {
        "id": call.id,
        "type": "function",
        "function": _function(call),
        **{"none": {}, "index": {"index": index}, "zero": {"index": 0}}[choices["call_index"]],
        **_signed(call.signature, choices),
    }


def _signed(signature: str | None, choices: Choices) -> Json:
    """Google's proof of a thought, where the endpoint is Google's."""
    if signature is None or choices["signatures"] == "none":
        return {}
    return {"extra_content": {"google": {"thought_signature": signature}}}


def _function(call: ToolCall) -> Json:
    arguments = json.dumps(call.arguments, ensure_ascii=False, separators=(",", ":"))
    return {"name": call.name, "arguments": arguments}


def _thoughts(message: Message, choices: Choices) -> Json:
    """What the model thought, under the names that the vendor has for it; most want nothing back."""
    form = choices["thoughts"]
    among = [] if form == "content" or isinstance(message.content, str | None) else message.content
    thoughts = [*(message.thinking or ()), *(part for part in among if isinstance(part, ThinkingPart))]
    body: Json = {}
    plain = [thought for thought in thoughts if thought.kind is None and thought.text is not None]
    if plain and form != "content":
        said = "".join(thought.text or "" for thought in plain)
        body |= dict.fromkeys(_NAMES[form], said)
    details = [_detail(thought) for thought in thoughts if thought.kind is not None]
    if details and form != "none":
        body["reasoning_details"] = details
    proofs = [thought.signature for thought in thoughts if thought.kind is None]
    return body | _signed(next(iter(proofs), None), choices)


_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "none": (),
    "reasoning_content": ("reasoning_content",),
    "reasoning": ("reasoning",),
    "both": ("reasoning_content", "reasoning"),
}


def _detail(thought: ThinkingPart) -> Json:
    named = without_nones(
        id=thought.id,
        format=thought.format,
        index=thought.index,
        signature=thought.signature,
        data=thought.data,
    )
    words = {"summary" if thought.kind == "summary" else "text": thought.text}
    return {"type": f"{_DETAILS}{thought.kind}", **without_nones(**words), **named}


def _old(message: Message, names: dict[str, str], choices: Choices) -> Json:
    """A message of the older form: one call at most, and results by name."""
    if message.role == "tool":
        return {
            "role": "function",
            "name": names.get(message.tool_call_id or "", message.name or ""),
            "content": _message(message, choices)["content"],
        }
    body = _message(message, choices)
    if message.tool_calls:
        del body["tool_calls"]
        body["function_call"] = _function(message.tool_calls[0])
    return body


def read_messages(native: Any, spelling: dict[str, str]) -> list[Json]:
    """The canonical messages."""
    made: list[Json] = []
    latest = ""
    for index, message in enumerate(objects(native, "messages")):
        path = f"messages[{index}]"
        read = _read(message, path, spelling)
        if message.get("role") == "function":
            read["tool_call_id"] = latest or "call_1"
        if message.get("function_call") is not None:
            latest = f"call_{index}"
            call = fields(message["function_call"], f"{path}.function_call")
            read["tool_calls"] = [{"id": latest, **_read_function(call, path)}]
            spelling["functions"] = "functions"
        made.append(read)
    return made


def _read(message: Json, path: str, spelling: dict[str, str]) -> Json:
    role = text(message.get("role"), f"{path}.role")
    made: Json = {"role": _ROLES.get(role, role)}
    if made["role"] == "system":
        spelling["system"] = role
    if role == "function":
        spelling["functions"] = "functions"
    made |= without_nones(
        content=read_content(message.get("content"), f"{path}.content", spelling),
        tool_call_id=message.get("tool_call_id"),
        name=message.get("name"),
        refusal=message.get("refusal"),
        prefix=message.get("prefix"),
        thinking=_read_thoughts(message, path, spelling),
    )
    if made["role"] == "tool":
        made |= _unmarked(made.get("content"))
    calls = objects(message.get("tool_calls"), f"{path}.tool_calls")
    if calls:
        spelling["call_index"] = _placing([call.get("index") for call in calls], spelling)
        made["tool_calls"] = [
            _read_call(call, f"{path}.tool_calls[{index}]", spelling) for index, call in enumerate(calls)
        ]
    return made | read_cache(message)


_ROLES: Final = {"developer": "system", "function": "tool"}


def _placing(indexes: list[Any], spelling: dict[str, str]) -> str:
    """Whether calls carry their place, or a 0 whatever their place is."""
    if indexes[0] is None:
        return "none"
    return "zero" if len(indexes) > 1 and not any(indexes) else spelling.get("call_index", "index")


def _unmarked(content: Any) -> Json:
    if isinstance(content, str) and content.startswith(ERROR_MARK):
        return {"content": content.removeprefix(ERROR_MARK), "is_error": True}
    return {}


def _read_call(call: Json, path: str, spelling: dict[str, str]) -> Json:
    signature = _read_signature(call, spelling)
    function = _read_function(fields(call.get("function"), f"{path}.function"), path)
    return {"id": text(call.get("id"), f"{path}.id"), **function, **without_nones(signature=signature)}


def _read_signature(native: Json, spelling: dict[str, str]) -> Any:
    signature: Any = native
    for step in _SIGNED:
        signature = signature.get(step) if isinstance(signature, dict) else None
    if signature is not None:
        spelling["signatures"] = "extra_content"
    return signature


def _read_function(function: Json, path: str) -> Json:
    given = function.get("arguments")
    try:
        arguments = json.loads(given or "{}") if isinstance(given, str | None) else given
    except ValueError:
        refuse(f"{path}.arguments", "is no JSON")
    return {"name": function.get("name"), "arguments": arguments}


def _read_thoughts(message: Json, path: str, spelling: dict[str, str]) -> list[Json] | None:
    plain = [name for name in ("reasoning_content", "reasoning") if message.get(name) is not None]
    details = message.get("reasoning_details")
    signature = _read_signature(message, spelling)
    if not plain and details is None and signature is None:
        return None
    made: list[Json] = []
    if plain:
        spelling["thoughts"] = "both" if len(plain) > 1 else plain[0]
    elif details is not None:
        spelling.setdefault("thoughts", "reasoning")
    if plain or signature is not None:
        said = text(message[plain[0]], f"{path}.{plain[0]}") if plain else None
        made.append({"type": "thinking", **without_nones(text=said, signature=signature)})
    return [*made, *(_read_detail(one) for one in objects(details, f"{path}.reasoning_details"))]


def _read_detail(detail: Json) -> Json:
    kind = str(detail.get("type", "")).removeprefix(_DETAILS)
    opaque = {key: detail[key] for key in ("id", "format", "index", "signature", "data") if key in detail}
    words = detail.get("summary" if kind == "summary" else "text")
    return {"type": "thinking", "kind": kind, **without_nones(text=words, **opaque)}
