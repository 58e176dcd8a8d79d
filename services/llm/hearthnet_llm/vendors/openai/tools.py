"""Tools, the choice among them, and the form of the answer, in both directions."""

from __future__ import annotations

from typing import Any

from hearthnet_llm.request import ChatRequest, Named, ResponseSchema, Tool, ToolChoice
from hearthnet_llm.vendors.openai.parts import write_cache
from hearthnet_llm.vendors.openai.parts_read import read_cache
from hearthnet_llm.vendors.openai.spelling import Choices
from hearthnet_llm.vendors.reading import fields, objects, refuse, text, without_nones
from hearthnet_llm.vendors.wire import Json

SEARCH = "web_search"


def write(request: ChatRequest, choices: Choices, body: Json) -> None:
    """Puts what `request` says of tools into `body`."""
    tools = request.tools
    if tools is not None and choices["web_search"] == "web_search_options":
        for tool in tools:
            if tool.server is not None and tool.server.kind == SEARCH:
                body["web_search_options"] = without_nones(search_context_size=tool.server.context_size)
        kept = [tool for tool in tools if tool.server is None or tool.server.kind != SEARCH]
        tools = kept if kept or not tools else None
    old = choices["functions"] == "functions"
    if tools is not None:
        body["functions" if old else "tools"] = [
            _function(tool) if old else _tool(tool, choices) for tool in tools
        ]
    if request.tool_choice is not None and (tools is not None or choices["lone_choice"] == "sent"):
        body["function_call" if old else "tool_choice"] = _choice(request.tool_choice, choices, old)


def write_format(schema: ResponseSchema | None, choices: Choices, body: Json) -> None:
    """Puts the form of the answer into `body`."""
    if schema is None:
        if choices["plain_text"] == "said":
            body["response_format"] = {"type": "text"}
    elif schema.schema is None:
        body["response_format"] = {"type": "json_object"}
    elif choices["schema"] == "json_object":
        body["response_format"] = {"type": "json_object", "schema": schema.schema}
    else:
        named = without_nones(name=schema.name, description=schema.description, strict=schema.strict)
        body["response_format"] = {"type": "json_schema", "json_schema": {**named, "schema": schema.schema}}


def _tool(tool: Tool, choices: Choices) -> Json:
    if tool.server is not None:
        return {"type": tool.server.kind, **without_nones(search_context_size=tool.server.context_size)}
    kind = {} if choices["tool_type"] == "none" else {"type": "function"}
    made = {**kind, "function": _function(tool), **write_cache(tool.cache)}
    if choices["strict"] == "tool" and "strict" in made["function"]:
        made["strict"] = made["function"].pop("strict")
    return made


def _function(tool: Tool) -> Json:
    more = without_nones(description=tool.description, parameters=tool.parameters_schema, strict=tool.strict)
    return {"name": tool.name, **more}


def _choice(choice: ToolChoice, choices: Choices, old: bool) -> str | Json:
    if not isinstance(choice, Named):
        word = choices["required"] if choice == "required" else choice
        return {"type": word} if choices["choice"] == "object" else word
    if old:
        return {"name": choice.name}
    if choices["named"] in ("flat", "tool"):
        return {"type": "tool" if choices["named"] == "tool" else "function", "name": choice.name}
    if choices["named"] == "untyped":
        return {"function": {"name": choice.name}}
    named = [{"type": "function", "function": {"name": name}} for name in (choice.name, *choice.others)]
    if len(named) == 1 and choice.required:
        return named[0]
    mode = "required" if choice.required else "auto"
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": named}}


def read(body: Json, spelling: dict[str, str]) -> Json:
    """What a native `body` says of tools, under the canonical names."""
    made: Json = {}
    if body.get("tools") is not None:
        tools = objects(body["tools"], "tools")
        made["tools"] = [_read_tool(tool, f"tools[{index}]", spelling) for index, tool in enumerate(tools)]
    if body.get("functions") is not None:
        spelling["functions"] = "functions"
        old = objects(body["functions"], "functions")
        made["tools"] = [_read_function(tool, f"functions[{index}]") for index, tool in enumerate(old)]
    if body.get("web_search_options") is not None:
        spelling["web_search"] = "web_search_options"
        options = fields(body["web_search_options"], "web_search_options")
        server = {"kind": SEARCH, **without_nones(context_size=options.get("search_context_size"))}
        made["tools"] = [*made.get("tools", []), {"name": SEARCH, "server": server}]
    for name in ("tool_choice", "function_call"):
        if body.get(name) is not None:
            made["tool_choice"] = _read_choice(body[name], name, spelling)
            spelling["lone_choice"] = "left_out" if "tools" in made else "sent"
    return made


def read_format(body: Json, spelling: dict[str, str]) -> Json:
    """The form of the answer that a native `body` asks for, as its canonical field, or nothing."""
    if body.get("response_format") is None:
        return {}
    form = fields(body["response_format"], "response_format")
    match form.get("type"):
        case "text":
            spelling["plain_text"] = "said"
            return {}
        case "json_object":
            if form.get("schema") is None:
                return {"response_schema": {}}
            spelling["schema"] = "json_object"
            return {"response_schema": {"schema": form["schema"]}}
        case "json_schema":
            spelling["schema"] = "json_schema"
            given = fields(form.get("json_schema"), "response_format.json_schema")
            known = {name: given.get(name) for name in ("name", "description", "strict", "schema")}
            return {"response_schema": without_nones(**known)}
        case other:
            refuse("response_format.type", f"{other!r} is no known form")


def _read_tool(tool: Json, path: str, spelling: dict[str, str]) -> Json:
    kind = tool.get("type")
    spelling["tool_type"] = "none" if kind is None else "function"
    if kind in (None, "function"):
        made = {**_read_function(fields(tool.get("function"), f"{path}.function"), path), **read_cache(tool)}
        if tool.get("strict") is not None:
            spelling["strict"], made["strict"] = "tool", tool["strict"]
        return made
    name = text(kind, f"{path}.type")
    spelling["web_search"] = "tool"
    server = {"kind": name, **without_nones(context_size=tool.get("search_context_size"))}
    return {"name": name, "server": server}


def _read_function(function: Json, path: str) -> Json:
    more = without_nones(
        description=function.get("description"),
        parameters_schema=function.get("parameters"),
        strict=function.get("strict"),
    )
    return {"name": text(function.get("name"), f"{path}.name"), **more}


def _read_choice(choice: Any, path: str, spelling: dict[str, str]) -> Any:
    if isinstance(choice, str):
        if choice in ("required", "any"):
            spelling["required"] = choice
            return "required"
        return choice
    given = fields(choice, path)
    if given.get("type") in ("auto", "none", "required", "any"):
        spelling["choice"] = "object"
        return _read_choice(given["type"], path, spelling)
    if given.get("type") == "allowed_tools":
        allowed = fields(given.get("allowed_tools"), f"{path}.allowed_tools")
        names = [_name(tool, path) for tool in objects(allowed.get("tools"), f"{path}.allowed_tools.tools")]
        if not names:
            refuse(f"{path}.allowed_tools.tools", "names no tool")
        others = {"others": names[1:]} if names[1:] else {}
        return {"name": names[0], **others, "required": allowed.get("mode") == "required"}
    kinds = {"tool": "tool", None: "untyped" if "function" in given else "flat"}
    spelling["named"] = kinds.get(given.get("type"), "function" if "function" in given else "flat")
    return {"name": _name(given, path)}


def _name(choice: Json, path: str) -> str:
    function = choice.get("function", choice)
    return text(fields(function, path).get("name"), f"{path}.name")
