"""The whole request in both directions (Ollama API, "Generate a chat completion").

Text and images are apart, thoughts have a field, and ids of calls may be missing. This vendor has no tool
choice: for "none" the tools are omitted, and other choices are left to the model. If the target states the
context, a longer prompt is an error instead of being cut silently.
"""

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
from hearthnet_llm.interface.request import ChatRequest, Message, Named, ResponseSchema, Thinking, Tool
from hearthnet_llm.vendors.calls import ERROR_MARK, Pairing, is_made_up
from hearthnet_llm.vendors.field_tables import read_fields, same_names, write_fields
from hearthnet_llm.vendors.json_access import (
    as_text,
    checked,
    entries,
    fields,
    objects,
    refuse,
    text,
    ungrammatical,
    without_nones,
)
from hearthnet_llm.vendors.role_alternation import message_parts
from hearthnet_llm.vendors.wire import HttpRequest, Json, Target

SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "options": ("absent", "empty"),
    "no_format": ("absent", "empty"),
    "think": ("think", "options.think"),
    "no_calls": ("absent", "empty", "everywhere"),
    "no_images": ("absent", "empty"),
    "no_thought": ("absent", "empty"),
    "no_text": ("empty", "absent"),
    "call_type": ("none", "function"),
    "call_index": ("none", "index", "zero"),
    "call_ids": ("given", "all"),
    "result_name": ("tool_name", "name", "none"),
    "results": ("named", "some"),
    "tool_type": ("function", "none"),
    "no_parameters": ("object", "absent"),
    "strict": ("left_out", "sent"),
    "no_limit": ("absent", "-2", "-1", "0"),
}
_PATH: Final = "/api/chat"
_OPTIONS: Final[dict[str, str]] = {
    "max_tokens": "num_predict",
    "repetition_penalty": "repeat_penalty",
    **same_names("temperature", "top_p", "top_k", "min_p", "seed", "stop"),
    **same_names("presence_penalty", "frequency_penalty"),
}
_PLAIN: Final = same_names("stream", "logprobs", "top_logprobs")
_JSON: Final = "json"
_ROLES: Final = ("system", "user", "assistant", "tool")
_LEFT_OUT: Final = (
    "call", "server_call", "server_result", "tool_reference", "thinking", "summary", "model_change",
    "tool_listing", "tool_change",
)  # fmt: skip


def encode(request: ChatRequest, target: Target) -> HttpRequest:
    """Return the request POST /api/chat."""
    ungrammatical(request)
    spelling = target.spelling
    names = {call.id: call.name for message in request.messages for call in message.tool_calls}
    messages = [_write_message(message, names, spelling) for message in request.messages]
    body: Json = {"model": target.model, "messages": messages}
    options = {**without_nones(num_ctx=target.ctx), **write_fields(request, _OPTIONS)}
    if request.max_tokens is None and spelling.get("no_limit", "absent") != "absent":
        options["num_predict"] = int(spelling["no_limit"])
    thinking = _thinking(request.thinking)
    if thinking is not None and spelling.get("think") == "options.think":
        options["think"] = thinking
    elif thinking is not None:
        body["think"] = thinking
    if options or spelling.get("options") == "empty":
        body["options"] = options
    declared = _allowed(request)
    if declared is not None:
        body["tools"] = [_tool(tool, spelling) for tool in declared]
    form = _format(request.response_schema)
    if form is not None or spelling.get("no_format") == "empty":
        body["format"] = "" if form is None else form
    body |= write_fields(request, _PLAIN)
    if target.ctx is not None:
        body["truncate"] = False
    return HttpRequest("POST", target.base + _PATH, body)


def loading(target: Target) -> HttpRequest:
    """Return the request to load the model without an answer (its FAQ, "preload a model")."""
    options = {} if target.ctx is None else {"options": {"num_ctx": target.ctx}}
    return HttpRequest("POST", target.base + _PATH, {"model": target.model, "messages": [], **options})


def read(native: HttpRequest, vendor: str) -> tuple[ChatRequest, Target]:
    """Return the request of a native one, as `Wire.read`."""
    spelling: dict[str, str] = {}
    if not native.url.endswith(_PATH):
        refuse("path", f"must end in {_PATH}")
    body = native.body
    options = body.get("options")
    spelling["options"] = "absent" if options is None else "empty"
    options = _limited(fields(options or {}, "options"), spelling)
    declared = body.get("tools")
    tools = [_read_tool(tool, path, spelling) for tool, path in entries(declared, "tools")]
    messages, pairing = entries(body.get("messages"), "messages"), Pairing()
    request = ChatRequest(
        messages=[_read_message(one, path, pairing, spelling) for one, path in messages],
        tools=None if declared is None else tools,
        response_schema=_read_format(body.get("format"), spelling),
        thinking=_read_thinking(body, options, spelling),
        **read_fields(options, _OPTIONS),
        **read_fields(body, _PLAIN),
    )
    target = Target(text(body.get("model"), "model"), native.url.removesuffix(_PATH), vendor, "", spelling)
    return checked(request), target


def _limited(options: Json, spelling: dict[str, str]) -> Json:
    """Return the options without an unlimited limit: -1 is any length, -2 all of the context."""
    most = options.get("num_predict")
    if isinstance(most, bool) or str(most) not in SPELLINGS["no_limit"][1:]:
        return options
    spelling["no_limit"] = str(most)
    return {**options, "num_predict": None}


def _allowed(request: ChatRequest) -> list[Tool] | None:
    """Return the tools that may be called at all, or None."""
    choice = request.tool_choice
    if request.tools is None or choice == "none":
        return None
    if isinstance(choice, Named):
        return [tool for tool in request.tools if tool.name in (choice.name, *choice.others)]
    return request.tools


def _tool(tool: Tool, spelling: Mapping[str, str]) -> Json:
    if tool.server is not None:
        refuse("/input/tools", f"Ollama runs no tools of its own; leave {tool.name} out")
    absent = tool.parameters_schema is None and spelling.get("no_parameters") == "absent"
    strict = tool.strict if spelling.get("strict") == "sent" else None
    about = without_nones(description=tool.description, strict=strict)
    function = {"name": tool.name, **about, **({} if absent else {"parameters": tool.schema})}
    kind = {} if spelling.get("tool_type") == "none" else {"type": "function"}
    return {**kind, "function": function}


def _read_tool(native: Json, where: str, spelling: dict[str, str]) -> Tool:
    function = fields(native.get("function"), f"{where}.function")
    name = text(function.get("name"), f"{where}.function.name")
    if function.get("parameters") is None:
        spelling["no_parameters"] = "absent"
    if native.get("type") is None:
        spelling["tool_type"] = "none"
    if function.get("strict") is not None:
        spelling["strict"] = "sent"
    return Tool(name, function.get("description"), function.get("parameters"), function.get("strict"))


def _thinking(thinking: Thinking | None) -> bool | str | None:
    if thinking is None or (thinking.mode == "auto" and thinking.effort is None):
        return None
    if thinking.mode == "off":
        return False
    return thinking.effort or (True if thinking.mode == "on" else None)


def _read_thinking(body: Json, options: Json, spelling: dict[str, str]) -> Thinking | None:
    native: Any = body.get("think")
    if native is None and options.get("think") is not None:
        spelling["think"] = "options.think"
        native = options["think"]
    if isinstance(native, str):
        return Thinking(effort=native)
    return None if native is None else Thinking("on" if native else "off")


def _format(schema: ResponseSchema | None) -> str | Json | None:
    if schema is None:
        return None
    return _JSON if schema.schema is None else schema.schema


def _read_format(native: Any, spelling: dict[str, str]) -> ResponseSchema | None:
    if native == "":
        spelling["no_format"] = "empty"
    if native is None or native == "":
        return None
    return ResponseSchema() if native == _JSON else ResponseSchema(schema=fields(native, "format"))


def _write_message(message: Message, names: dict[str, str], spelling: Mapping[str, str]) -> Json:
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
    call_id = str(message.tool_call_id)
    name = message.name or (None if spelling.get("results") == "some" else names.get(call_id))
    field = spelling.get("result_name", "tool_name")
    named = {} if field == "none" or name is None else {field: name}
    return named if _is_ours(call_id, spelling) else {**named, "tool_call_id": call_id}


def _is_ours(call_id: str, spelling: Mapping[str, str]) -> bool:
    return is_made_up(call_id) and spelling.get("call_ids") != "all"


def _call(call: ToolCall, place: int, spelling: Mapping[str, str]) -> Json:
    kind = {"type": "function"} if spelling.get("call_type") == "function" else {}
    identity = {} if _is_ours(call.id, spelling) else {"id": call.id}
    index = {"none": {}, "zero": {"index": 0}}.get(spelling.get("call_index", "none"), {"index": place})
    return {**kind, **identity, "function": {**index, "name": call.name, "arguments": call.arguments}}


def _read_message(native: Json, where: str, pairing: Pairing, spelling: dict[str, str]) -> Message:
    role = text(native.get("role"), f"{where}.role")
    if role not in _ROLES:
        refuse(f"{where}.role", f"{role!r} is no role of this wire")
    calls = [
        _read_call(one, f"{where}.tool_calls[{place}]", place, pairing, spelling)
        for place, one in enumerate(objects(native.get("tool_calls"), f"{where}.tool_calls"))
    ]
    _note_empty(native, role, spelling)
    if role == "assistant":
        pairing.begin(calls)
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
    return ToolCall(pairing.ids.assign(native.get("id")), name, function.get("arguments") or {})
