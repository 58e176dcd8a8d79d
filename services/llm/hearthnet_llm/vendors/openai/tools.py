"""Tools and the choice among them, in both directions."""

from __future__ import annotations

from typing import Any

from hearthnet_llm.interface.request import ChatRequest, Named, Tool, ToolChoice
from hearthnet_llm.vendors.json_access import fields, objects, refuse, text, without_nones
from hearthnet_llm.vendors.openai import custom, server_tools
from hearthnet_llm.vendors.openai.dialect import Choices
from hearthnet_llm.vendors.openai.parts import write_cache
from hearthnet_llm.vendors.openai.parts_read import read_cache
from hearthnet_llm.vendors.openai.server_tools import SEARCH
from hearthnet_llm.vendors.wire import Json


def write(request: ChatRequest, choices: Choices, body: Json) -> None:
    """Put the tools and the choice of `request` into `body`."""
    tools = request.tools
    if tools is not None and choices["web_search"] == "web_search_options":
        for tool in tools:
            if tool.server is not None and tool.server.kind == SEARCH:
                body["web_search_options"] = server_tools.write_options(tool.server)
        kept = [tool for tool in tools if tool.server is None or tool.server.kind != SEARCH]
        tools = kept if kept or not tools else None
    old = choices["functions"] == "functions"
    if tools is not None:
        body["functions" if old else "tools"] = [
            _function(tool) if old else _tool(tool, choices) for tool in tools
        ]
    if request.tool_choice is not None and (tools is not None or choices["lone_choice"] == "sent"):
        texts = custom.names(request.tools)
        body["function_call" if old else "tool_choice"] = _choice(request.tool_choice, choices, old, texts)


def _tool(tool: Tool, choices: Choices) -> Json:
    if tool.server is not None:
        return server_tools.write(tool.server, choices)
    if tool.text is not None:
        return custom.write_tool(tool, tool.text)
    kind = {} if choices["tool_type"] == "none" else {"type": "function"}
    eager = without_nones(eager_input_streaming=tool.eager)
    made = {**kind, "function": _function(tool), **eager, **write_cache(tool.cache)}
    if choices["strict"] == "tool" and "strict" in made["function"]:
        made["strict"] = made["function"].pop("strict")
    return made


def _function(tool: Tool) -> Json:
    more = without_nones(description=tool.description, parameters=tool.parameters_schema, strict=tool.strict)
    return {"name": tool.name, **more}


def _choice(choice: ToolChoice, choices: Choices, old: bool, texts: set[str]) -> str | Json:
    if not isinstance(choice, Named):
        word = choices["required"] if choice == "required" else choice
        return {"type": word} if choices["choice"] == "object" else word
    if old:
        return {"name": choice.name}
    if choices["named"] in ("flat", "tool"):
        return {"type": "tool" if choices["named"] == "tool" else "function", "name": choice.name}
    if choices["named"] == "untyped":
        return {"function": {"name": choice.name}}
    kinds = {name: custom.KIND if name in texts else "function" for name in (choice.name, *choice.others)}
    named = [{"type": kind, kind: {"name": name}} for name, kind in kinds.items()]
    if len(named) == 1 and choice.required:
        return named[0]
    mode = "required" if choice.required else "auto"
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": named}}


def read(body: Json, spelling: dict[str, str]) -> Json:
    """Return the tools and the choice of a native `body` by canonical name."""
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
        search = server_tools.read_options(body["web_search_options"])
        made["tools"] = [*made.get("tools", []), search]
    for name in ("tool_choice", "function_call"):
        if body.get(name) is not None:
            made["tool_choice"] = _read_choice(body[name], name, spelling)
            spelling["lone_choice"] = "left_out" if "tools" in made else "sent"
    return made


def _read_tool(tool: Json, path: str, spelling: dict[str, str]) -> Json:
    kind = tool.get("type")
    spelling["tool_type"] = "none" if kind is None else "function"
    if kind in (None, "function"):
        made = {**_read_function(fields(tool.get("function"), f"{path}.function"), path), **read_cache(tool)}
        made |= without_nones(eager=tool.get("eager_input_streaming"))
        if tool.get("strict") is not None:
            spelling["strict"], made["strict"] = "tool", tool["strict"]
        return made
    if kind == custom.KIND:
        return custom.read_tool(tool, path)
    return server_tools.read(tool, path, spelling)


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
    held = "function" in given or custom.KIND in given
    kinds = {"tool": "tool", None: "untyped" if held else "flat"}
    spelling["named"] = kinds.get(given.get("type"), "function" if held else "flat")
    return {"name": _name(given, path)}


def _name(choice: Json, path: str) -> str:
    function = choice.get("function", choice.get(custom.KIND, choice))
    return text(fields(function, path).get("name"), f"{path}.name")
