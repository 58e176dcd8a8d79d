"""Tools and the choice among them, in both directions.

Tools called with one text instead of arguments, which OpenAI calls custom, canonically have the text as the
argument `input`, so that only this protocol has to handle the form. Tools that the vendor runs are mostly
among the tools with their settings beside `type`; OpenRouter has a prefix, and the settings under
`parameters`; OpenAI's own search is a field of the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hearthnet_llm.interface.frames import ToolCall
from hearthnet_llm.interface.request import ChatRequest, Named, Region, ServerTool, TextForm, Tool, ToolChoice
from hearthnet_llm.vendors.field_tables import read_fields, same_names, write_fields
from hearthnet_llm.vendors.json_access import entries, fields, objects, refuse, text, without_nones
from hearthnet_llm.vendors.openai.dialect import Choices
from hearthnet_llm.vendors.openai.parts import read_cache, write_cache
from hearthnet_llm.vendors.wire import Json

CUSTOM: Final = "custom"
TEXT_ARGUMENT: Final = "input"
_SYNTAX: Final = "lark"
"""Default syntax of a grammar; OpenAI requires one."""
_SEARCH: Final = "web_search"
_PREFIX: Final = "openrouter:"
_BUILTIN: Final = "builtin_function"
"""Moonshot's type for them; their names begin with a dollar sign."""
_FUNCTION: Final = {**same_names("description", "strict"), "parameters_schema": "parameters"}
_NAMES: Final = {
    "context_size": "search_context_size",
    "blocked_domains": "excluded_domains",
    "max_tokens": "max_completion_tokens",
    "transcript": "forward_transcript",
    **same_names("allowed_domains", "max_uses", "max_results", "model"),
}
"""Settings by canonical name, with their native names."""


def write(request: ChatRequest, choices: Choices, body: Json) -> None:
    """Put the tools and the choice of `request` into `body`."""
    tools = request.tools
    if tools is not None and choices["web_search"] == "web_search_options":
        for tool in tools:
            if tool.server is not None and tool.server.kind == _SEARCH:
                body["web_search_options"] = _write_search(tool.server)
        kept = [tool for tool in tools if tool.server is None or tool.server.kind != _SEARCH]
        tools = kept if kept or not tools else None
    old = choices["functions"] == "functions"
    if tools is not None:
        body["functions" if old else "tools"] = [
            _function(tool) if old else _tool(tool, choices) for tool in tools
        ]
    if request.tool_choice is not None and (tools is not None or choices["lone_choice"] == "sent"):
        texts = custom_names(request.tools)
        body["function_call" if old else "tool_choice"] = _choice(request.tool_choice, choices, old, texts)


def _tool(tool: Tool, choices: Choices) -> Json:
    if tool.server is not None:
        return _write_server_tool(tool.server, choices)
    if tool.text is not None:
        return _write_custom_tool(tool, tool.text)
    kind = {} if choices["tool_type"] == "none" else {"type": "function"}
    eager = without_nones(eager_input_streaming=tool.eager)
    made = {**kind, "function": _function(tool), **eager, **write_cache(tool.cache)}
    if choices["strict"] == "tool" and "strict" in made["function"]:
        made["strict"] = made["function"].pop("strict")
    return made


def _function(tool: Tool) -> Json:
    return {"name": tool.name, **write_fields(tool, _FUNCTION)}


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
    kinds = {name: CUSTOM if name in texts else "function" for name in (choice.name, *choice.others)}
    named = [{"type": kind, kind: {"name": name}} for name, kind in kinds.items()]
    if len(named) == 1 and choice.required:
        return named[0]
    mode = "required" if choice.required else "auto"
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": named}}


def read(body: Json, spelling: dict[str, str]) -> Json:
    """Return the tools and the choice of a native `body` by canonical name."""
    made: Json = {}
    if body.get("tools") is not None:
        made["tools"] = [_read_tool(tool, path, spelling) for tool, path in entries(body["tools"], "tools")]
    if body.get("functions") is not None:
        spelling["functions"] = "functions"
        old = entries(body["functions"], "functions")
        made["tools"] = [_read_function(tool, path) for tool, path in old]
    if body.get("web_search_options") is not None:
        spelling["web_search"] = "web_search_options"
        search = _read_search(body["web_search_options"])
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
    if kind == CUSTOM:
        return _read_custom_tool(tool, path)
    return _read_server_tool(tool, path, spelling)


def _read_function(function: Json, path: str) -> Json:
    more = read_fields(function, _FUNCTION)
    return {"name": text(function.get("name"), f"{path}.name"), **without_nones(**more)}


def _read_choice(choice: Any, path: str, spelling: dict[str, str]) -> Any:
    if isinstance(choice, str):
        if choice in ("required", "any"):
            spelling["required"] = choice
            return "required"
        return choice
    named = fields(choice, path)
    if named.get("type") in ("auto", "none", "required", "any"):
        spelling["choice"] = "object"
        return _read_choice(named["type"], path, spelling)
    if named.get("type") == "allowed_tools":
        allowed = fields(named.get("allowed_tools"), f"{path}.allowed_tools")
        names = [_name(tool, path) for tool in objects(allowed.get("tools"), f"{path}.allowed_tools.tools")]
        if not names:
            refuse(f"{path}.allowed_tools.tools", "names no tool")
        others = {"others": names[1:]} if names[1:] else {}
        return {"name": names[0], **others, "required": allowed.get("mode") == "required"}
    held = "function" in named or CUSTOM in named
    kinds = {"tool": "tool", None: "untyped" if held else "flat"}
    spelling["named"] = kinds.get(named.get("type"), "function" if held else "flat")
    return {"name": _name(named, path)}


def _name(choice: Json, path: str) -> str:
    function = choice.get("function", choice.get(CUSTOM, choice))
    return text(fields(function, path).get("name"), f"{path}.name")


def custom_names(tools: list[Tool] | None) -> set[str]:
    """Return the names of such tools."""
    return {tool.name for tool in tools or () if tool.text is not None}


def _write_custom_tool(tool: Tool, form: TextForm) -> Json:
    """Return the native tool."""
    made = {"name": tool.name, **without_nones(description=tool.description)}
    if form.definition is not None:
        grammar = {"syntax": form.syntax or _SYNTAX, "definition": form.definition}
        made["format"] = {"type": "grammar", "grammar": grammar}
    elif form.syntax is not None:
        made["format"] = {"type": form.syntax}
    return {"type": CUSTOM, CUSTOM: made}


def _read_custom_tool(native: Json, path: str) -> Json:
    """Return the canonical tool."""
    custom = fields(native.get(CUSTOM), f"{path}.{CUSTOM}")
    form = custom.get("format") or {}
    grammar = form.get("grammar")
    found = grammar if isinstance(grammar, dict) else {"syntax": form.get("type")}
    name = text(custom.get("name"), f"{path}.{CUSTOM}.name")
    return {
        "name": name,
        **without_nones(description=custom.get("description")),
        "text": without_nones(syntax=found.get("syntax"), definition=found.get("definition")),
    }


def write_custom_call(call: ToolCall) -> Json:
    """Return the native fields of an earlier call."""
    return {"type": CUSTOM, CUSTOM: {"name": call.name, TEXT_ARGUMENT: call.arguments[TEXT_ARGUMENT]}}


def read_custom_call(native: Json, path: str) -> Json:
    """Return the canonical fields of an earlier call."""
    custom = fields(native.get(CUSTOM), f"{path}.{CUSTOM}")
    return {
        "name": custom.get("name"),
        "arguments": {TEXT_ARGUMENT: text(custom.get(TEXT_ARGUMENT), f"{path}.{CUSTOM}.{TEXT_ARGUMENT}")},
    }


def is_custom_call(native: Mapping[str, Any]) -> bool:
    """Return whether a call in an answer, or a piece of one, is of this form."""
    return isinstance(native.get(CUSTOM), Mapping)


def _write_server_tool(server: ServerTool, choices: Choices) -> Json:
    """Return the native tool."""
    if choices["server_tools"] == "builtin_function":
        return {"type": _BUILTIN, "function": {"name": f"${server.kind}"}}
    if choices["server_tools"] == "flat":
        return {"type": server.kind, **without_nones(search_context_size=server.context_size)}
    settings = write_fields(server, _NAMES)
    if server.place is not None:
        settings["user_location"] = {"type": "approximate", **msgspec.to_builtins(server.place)}
    more = {"parameters": settings} if settings or choices["no_settings"] == "empty" else {}
    return {"type": _PREFIX + server.kind, **more}


def _read_server_tool(native: Json, path: str, spelling: dict[str, str]) -> Json:
    """Return the canonical tool.

    Raises:
        HearthNetError: `bad_request` for a setting without a canonical name.
    """
    kind = text(native.get("type"), f"{path}.type")
    spelling["web_search"] = "tool"
    if kind == _BUILTIN:
        spelling["server_tools"] = kind
        function = fields(native.get("function"), f"{path}.function")
        name = text(function.get("name"), f"{path}.function.name").removeprefix("$")
        return {"name": name, "server": {"kind": name}}
    if not kind.startswith(_PREFIX):
        spelling["server_tools"] = "flat"
        server = {"kind": kind, **without_nones(context_size=native.get("search_context_size"))}
        return {"name": kind, "server": server}
    spelling["server_tools"] = "prefixed"
    kind = kind.removeprefix(_PREFIX)
    parameters = native.get("parameters")
    if parameters == {}:
        spelling["no_settings"] = "empty"
    settings = dict(fields({} if parameters is None else parameters, f"{path}.parameters"))
    place = settings.pop("user_location", None)
    server = {"kind": kind, **_read_settings(settings, f"{path}.parameters"), **_read_place(place, path)}
    return {"name": kind, "server": server}


def _write_search(server: ServerTool) -> Json:
    """Return OpenAI's own field for its search."""
    made = without_nones(search_context_size=server.context_size)
    if server.place is not None:
        made["user_location"] = {"type": "approximate", "approximate": msgspec.to_builtins(server.place)}
    return made


def _read_search(native: Any) -> Json:
    """Return the canonical tool of OpenAI's own field."""
    options = fields(native, "web_search_options")
    place = options.get("user_location") or {}
    server = {"kind": _SEARCH, **without_nones(context_size=options.get("search_context_size"))}
    return {
        "name": _SEARCH,
        "server": {**server, **_read_place(place.get("approximate"), "web_search_options")},
    }


def _read_settings(settings: Json, path: str) -> Json:
    for name in settings:
        if name not in _NAMES.values():
            refuse(f"{path}.{name}", "is no known setting of a tool that the vendor runs")
    return without_nones(**read_fields(settings, _NAMES))


def _read_place(place: Any, path: str) -> Json:
    """Return the user's place as a field, or nothing."""
    if place is None:
        return {}
    native = fields(place, f"{path}.user_location")
    return {"place": without_nones(**read_fields(native, same_names(*Region.__struct_fields__)))}
