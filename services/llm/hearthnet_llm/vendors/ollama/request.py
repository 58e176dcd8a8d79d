"""The whole request in both directions (Ollama API, "Generate a chat completion").

This vendor has no tool choice: for "none" the tools are omitted, and other choices are left to the model. If
the target states the context, a longer prompt is an error instead of being cut silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hearthnet_llm.interface.request import ChatRequest, Named, ResponseSchema, Thinking, Tool
from hearthnet_llm.vendors.json_access import (
    checked,
    fields,
    objects,
    refuse,
    text,
    ungrammatical,
    without_nones,
)
from hearthnet_llm.vendors.ollama import messages
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
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "seed": "seed",
    "stop": "stop",
    "repetition_penalty": "repeat_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}
_PLAIN: Final = ("stream", "logprobs", "top_logprobs")
_JSON: Final = "json"


def encode(request: ChatRequest, target: Target) -> HttpRequest:
    """Return the request POST /api/chat."""
    ungrammatical(request)
    spelling = target.spelling
    body: Json = {"model": target.model, "messages": messages.write(request.messages, spelling)}
    options = without_nones(
        num_ctx=target.ctx, **{its: getattr(request, ours) for ours, its in _OPTIONS.items()}
    )
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
    body |= without_nones(**{name: getattr(request, name) for name in _PLAIN})
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
    listed = enumerate(objects(declared, "tools"))
    tools = [_read_tool(tool, f"tools[{place}]", spelling) for place, tool in listed]
    request = ChatRequest(
        messages=messages.read(body.get("messages"), spelling),
        tools=None if declared is None else tools,
        response_schema=_read_format(body.get("format"), spelling),
        thinking=_read_thinking(body, options, spelling),
        **{ours: options.get(its) for ours, its in _OPTIONS.items()},
        **{name: body.get(name) for name in _PLAIN},
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
    return (
        {"function": function}
        if spelling.get("tool_type") == "none"
        else {"type": "function", "function": function}
    )


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
    given: Any = body.get("think")
    if given is None and options.get("think") is not None:
        spelling["think"] = "options.think"
        given = options["think"]
    if isinstance(given, str):
        return Thinking(effort=given)
    return None if given is None else Thinking("on" if given else "off")


def _format(schema: ResponseSchema | None) -> str | Json | None:
    if schema is None:
        return None
    return _JSON if schema.schema is None else schema.schema


def _read_format(given: Any, spelling: dict[str, str]) -> ResponseSchema | None:
    if given == "":
        spelling["no_format"] = "empty"
    if given is None or given == "":
        return None
    return ResponseSchema() if given == _JSON else ResponseSchema(schema=fields(given, "format"))
