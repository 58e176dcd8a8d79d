"""Tools and the choice among them, both ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hearthnet_llm.request import ChatRequest, Named, ServerTool, Tool, ToolChoice
from hearthnet_llm.vendors.gemini import schema
from hearthnet_llm.vendors.reading import fields, objects, refuse, text, without_nones
from hearthnet_llm.vendors.wire import Json

_KINDS: Final[dict[str, str]] = {
    "web_search": "googleSearch",
    "code_execution": "codeExecution",
    "web_fetch": "urlContext",
    "file_search": "fileSearch",
    "maps": "googleMaps",
    "enterprise_web_search": "enterpriseWebSearch",
    "computer": "computerUse",
    "web_search_retrieval": "googleSearchRetrieval",
}
_SETTINGS: Final[dict[str, dict[str, str]]] = {
    "googleSearch": {"blocked_domains": "excludeDomains"},
    "fileSearch": {"sources": "fileSearchStoreNames", "max_results": "topK", "filter": "metadataFilter"},
    "computerUse": {"environment": "environment", "excluded": "excludedPredefinedFunctions"},
}
_MODES: Final = ("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED")
"""In the order of their numbers."""
_FUNCTIONS: Final = "functionDeclarations"
_PLAIN: Final = "JsonSchema"
"""What ends the names of the fields that hold JSON Schema; the others are in the vendor's own dialect."""
_STREAMED: Final = "streamFunctionCallArguments"


def write(request: ChatRequest, spelling: Mapping[str, str]) -> Json:
    """The fields `tools` and `toolConfig`."""
    body: Json = {}
    if request.tools is not None:
        body["tools"] = _grouped(request.tools, spelling)
    config = _config(request, spelling)
    if config and request.tools:
        body["toolConfig"] = config
    elif (stands := spelling.get("tool_config", "absent")) != "absent":
        body["toolConfig"] = {"functionCallingConfig": {}} if stands == "calling" else {}
    return body


def _grouped(tools: list[Tool], spelling: Mapping[str, str]) -> list[Json]:
    """Functions that follow one another are one native tool; a target may want all in one, or each apart."""
    groups: list[Json] = []
    for tool in tools:
        native = _write_server(tool.server) if tool.server else {_FUNCTIONS: [_write(tool, spelling)]}
        joined = bool(groups) and (_FUNCTIONS in native) and (_FUNCTIONS in groups[-1])
        if joined and spelling.get("functions") != "apart":
            groups[-1][_FUNCTIONS] += native[_FUNCTIONS]
        elif groups and spelling.get("tools") == "together":
            groups[-1] |= native
        else:
            groups.append(native)
    return groups


def _write(tool: Tool, spelling: Mapping[str, str]) -> Json:
    named = {"name": tool.name, **without_nones(description=tool.description)}
    given = {"parameters": tool.parameters_schema, "response": tool.result_schema}
    if spelling.get("parameters") == "parameters":
        types = spelling.get("types", schema.TYPES[0])
        own = {name: schema.write(one, types) for name, one in given.items() if one is not None}
        return {**named, **own}
    return {**named, **{f"{name}{_PLAIN}": one for name, one in given.items() if one is not None}}


def _write_server(tool: ServerTool) -> Json:
    native = _KINDS.get(tool.kind)
    if native is None:
        refuse("/input/tools", f"Gemini has no tool {tool.kind}; it has {', '.join(_KINDS)}")
    names = _SETTINGS.get(native, {})
    return {native: without_nones(**{its: getattr(tool, ours) for ours, its in names.items()})}


def _config(request: ChatRequest, spelling: Mapping[str, str]) -> Json:
    choice = request.tool_choice
    made: Json = {}
    if request.show_server_tools is not None:
        made["includeServerSideToolInvocations"] = request.show_server_tools
    if choice is None:
        return made
    mode, names = _mode(choice), None
    if mode == "AUTO":
        mode = spelling.get("auto", "AUTO")
    if isinstance(choice, Named):
        names = [choice.name, *choice.others]
    written: Any = _MODES.index(mode) if spelling.get("mode") == "number" else mode
    streamed = {_STREAMED: True} if spelling.get("arguments") == "streamed" else {}
    named = without_nones(allowedFunctionNames=names)
    return {"functionCallingConfig": {"mode": written, **named, **streamed}, **made}


def _mode(choice: ToolChoice) -> str:
    if isinstance(choice, Named):
        return "ANY" if choice.required else "VALIDATED"
    return {"auto": "AUTO", "none": "NONE", "required": "ANY"}[choice]


def read(body: Json, spelling: dict[str, str]) -> Json:
    """The canonical fields on tools; notes in `spelling` how they stood."""
    made: Json = {}
    if body.get("tools") is not None:
        made["tools"] = _read_tools(objects(body["tools"], "tools"), spelling)
    config = fields(body.get("toolConfig") or {}, "toolConfig")
    if body.get("toolConfig") == {}:
        spelling["tool_config"] = "empty"
    if config.get("includeServerSideToolInvocations") is not None:
        made["show_server_tools"] = config["includeServerSideToolInvocations"]
    if config.get("functionCallingConfig") == {}:
        spelling["tool_config"] = "calling"
    elif config.get("functionCallingConfig") is not None:
        calling = fields(config["functionCallingConfig"], "toolConfig.functionCallingConfig")
        made["tool_choice"] = _read_choice(calling, spelling)
    return made


def _read_tools(native: list[Json], spelling: dict[str, str]) -> list[Tool]:
    tools: list[Tool] = []
    before = False
    for place, entry in enumerate(native):
        held = {name: value for name, value in entry.items() if value is not None}
        if len(held) > 1:
            spelling["tools"] = "together"
        if before and _FUNCTIONS in held:
            spelling["functions"] = "apart"
        before = _FUNCTIONS in held
        for name, value in held.items():
            where = f"tools[{place}].{name}"
            if name == _FUNCTIONS:
                tools += [_read(one, where, spelling) for one in objects(value, where)]
            else:
                tools.append(_read_server(name, fields(value, where), where))
    return tools


def _read(native: Json, where: str, spelling: dict[str, str]) -> Tool:
    given = {}
    for name, ours in (("parameters", "parameters_schema"), ("response", "result_schema")):
        found = native.get(f"{name}{_PLAIN}")
        if native.get(name) is not None:
            spelling["parameters"] = "parameters"
            found = schema.read(fields(native[name], f"{where}.{name}"), spelling)
        given[ours] = found
    return Tool(text(native.get("name"), f"{where}.name"), native.get("description"), **given)


def _read_server(name: str, native: Json, where: str) -> Tool:
    kind = next((ours for ours, its in _KINDS.items() if its == name), None)
    if kind is None:
        refuse(where, f"no tool {name!r} is known")
    settings = {ours: native.get(its) for ours, its in _SETTINGS.get(name, {}).items()}
    return Tool(kind, server=ServerTool(kind=kind, **settings))


def _read_choice(native: Json, spelling: dict[str, str]) -> ToolChoice:
    mode = native.get("mode")
    if native.get(_STREAMED):
        spelling["arguments"] = "streamed"
    if isinstance(mode, int) and mode < len(_MODES):
        spelling["mode"] = "number"
        mode = _MODES[mode]
    names = native.get("allowedFunctionNames") or []
    if names:
        return Named(names[0], names[1:], mode != "VALIDATED")
    match mode:
        case "AUTO" | "VALIDATED":
            spelling["auto"] = mode
            return "auto"
        case "ANY":
            return "required"
        case "NONE":
            return "none"
        case _:
            refuse("toolConfig.functionCallingConfig.mode", f"no mode {mode!r} is known")
