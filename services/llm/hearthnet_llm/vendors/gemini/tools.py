"""Tools and the choice among them, in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hearthnet_llm.interface.request import ChatRequest, Named, Tool, ToolChoice
from hearthnet_llm.vendors.gemini import schema, server_tools
from hearthnet_llm.vendors.json_access import fields, objects, refuse, text, without_nones
from hearthnet_llm.vendors.wire import Json

_MODES: Final = ("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED")
"""In the order of their numbers."""
_AMONG: Final = ("VALIDATED", "AUTO")
"""Modes in which the model need not call any of the named functions."""
_FUNCTIONS: Final = "functionDeclarations"
_PLAIN: Final = "JsonSchema"
"""Ends the names of the fields with JSON Schema; others are in the vendor's own dialect."""
_STREAMED: Final = "streamFunctionCallArguments"


def write(request: ChatRequest, spelling: Mapping[str, str]) -> Json:
    """Return the fields `tools` and `toolConfig`."""
    body: Json = {}
    if request.tools is not None:
        groups = _grouped(request.tools, spelling)
        body["tools"] = groups[0] if len(groups) == 1 and spelling.get("tool_list") == "one" else groups
    config = _config(request, spelling)
    if config and (request.tools or spelling.get("tool_config") == "alone"):
        body["toolConfig"] = config
    elif (stands := spelling.get("tool_config", "absent")) in ("empty", "calling"):
        body["toolConfig"] = {"functionCallingConfig": {}} if stands == "calling" else {}
    return body


def _grouped(tools: list[Tool], spelling: Mapping[str, str]) -> list[Json]:
    """Return the native tools; by default, adjacent functions share one."""
    groups: list[Json] = []
    for tool in tools:
        native = server_tools.write(tool.server) if tool.server else {_FUNCTIONS: [_write(tool, spelling)]}
        joined = bool(groups) and (_FUNCTIONS in native) and (_FUNCTIONS in groups[-1])
        if joined and spelling.get("functions") != "apart":
            groups[-1][_FUNCTIONS] += native[_FUNCTIONS]
        elif groups and spelling.get("tools") == "together":
            groups[-1] |= native
        else:
            groups.append(native)
    if spelling.get("no_functions") == "listed":
        groups = [{_FUNCTIONS: [], **group} for group in groups or [{}]]
    return groups


def _write(tool: Tool, spelling: Mapping[str, str]) -> Json:
    named = {"name": tool.name, **without_nones(description=tool.description)}
    given = {"parameters": tool.parameters_schema, "response": tool.result_schema}
    if spelling.get("parameters") == "parameters":
        own = {name: schema.write(one, spelling) for name, one in given.items() if one is not None}
        return {**named, **own}
    return {**named, **{f"{name}{_PLAIN}": one for name, one in given.items() if one is not None}}


def _config(request: ChatRequest, spelling: Mapping[str, str]) -> Json:
    made: Json = {}
    if request.show_server_tools is not None:
        made["includeServerSideToolInvocations"] = request.show_server_tools
    retrieving = server_tools.write_place(request.tools or [])
    if retrieving:
        made["retrievalConfig"] = retrieving
    calling: Json = {} if request.tool_choice is None else _choice(request.tool_choice, spelling)
    if spelling.get("arguments") == "streamed":
        calling[_STREAMED] = True
    return {"functionCallingConfig": calling, **made} if calling else made


def _choice(choice: ToolChoice, spelling: Mapping[str, str]) -> Json:
    mode, names = _mode(choice, spelling), None
    if isinstance(choice, Named):
        names = [choice.name, *choice.others]
    elif spelling.get("names") == "empty":
        names = []
    match spelling.get("mode"):
        case "number":
            return {"mode": _MODES.index(mode), **without_nones(allowedFunctionNames=names)}
        case "lower":
            mode = mode.lower()
    return {"mode": mode, **without_nones(allowedFunctionNames=names)}


def _mode(choice: ToolChoice, spelling: Mapping[str, str]) -> str:
    if isinstance(choice, Named):
        return "ANY" if choice.required else spelling.get("among", "VALIDATED")
    return {"auto": spelling.get("auto", "AUTO"), "none": "NONE", "required": "ANY"}[choice]


def read(body: Json, spelling: dict[str, str]) -> Json:
    """Return the canonical fields of tools; records their variants in `spelling`."""
    made: Json = {}
    if body.get("tools") is not None:
        listed = body["tools"]
        if isinstance(listed, dict):
            spelling["tool_list"] = "one"
            listed = [listed]
        made["tools"] = _read_tools(objects(listed, "tools"), spelling)
    config = fields(body.get("toolConfig") or {}, "toolConfig")
    if body.get("toolConfig") == {}:
        spelling["tool_config"] = "empty"
    if config.get("includeServerSideToolInvocations") is not None:
        made["show_server_tools"] = config["includeServerSideToolInvocations"]
    if config.get("retrievalConfig") is not None:
        where = "toolConfig.retrievalConfig"
        server_tools.read_place(fields(config["retrievalConfig"], where), made.setdefault("tools", []), where)
    if config.get("functionCallingConfig") == {}:
        spelling["tool_config"] = "calling"
    elif config.get("functionCallingConfig") is not None:
        if not made.get("tools"):
            spelling["tool_config"] = "alone"
        calling = fields(config["functionCallingConfig"], "toolConfig.functionCallingConfig")
        made["tool_choice"] = _read_choice(calling, spelling)
    return made


def _read_tools(native: list[Json], spelling: dict[str, str]) -> list[Tool]:
    tools: list[Tool] = []
    before = False
    for place, entry in enumerate(native):
        held = {name: value for name, value in entry.items() if value is not None}
        if held.get(_FUNCTIONS) == []:
            spelling["no_functions"] = "listed"
            del held[_FUNCTIONS]
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
                tools.append(server_tools.read(name, fields(value, where), where))
    return tools


def _read(native: Json, where: str, spelling: dict[str, str]) -> Tool:
    if native.get("behavior") is not None:
        refuse(f"{where}.behavior", "a call that is answered later is not known; leave it out")
    given = {}
    for name, ours in (("parameters", "parameters_schema"), ("response", "result_schema")):
        found = native.get(f"{name}{_PLAIN}")
        if native.get(name) is not None:
            spelling["parameters"] = "parameters"
            found = schema.read(fields(native[name], f"{where}.{name}"), spelling)
        given[ours] = found
    return Tool(text(native.get("name"), f"{where}.name"), native.get("description"), **given)


def _read_choice(native: Json, spelling: dict[str, str]) -> ToolChoice | None:
    if native.get(_STREAMED):
        spelling["arguments"] = "streamed"
        if native.get("mode") is None:
            return None
    mode = _read_mode(native.get("mode"), spelling)
    names = native.get("allowedFunctionNames")
    if names and mode in ("ANY", *_AMONG):
        if mode != "ANY":
            spelling["among"] = mode
        return Named(names[0], names[1:], mode == "ANY")
    if names:
        refuse("toolConfig.functionCallingConfig.allowedFunctionNames", f"has no meaning with mode {mode}")
    if names is not None:
        spelling["names"] = "empty"
    match mode:
        case "AUTO" | "VALIDATED" | "MODE_UNSPECIFIED":
            spelling["auto"] = mode
            return "auto"
        case "ANY":
            return "required"
        case "NONE":
            return "none"
        case _:
            refuse("toolConfig.functionCallingConfig.mode", f"no mode {mode!r} is known")


def _read_mode(given: Any, spelling: dict[str, str]) -> Any:
    """Return the mode by its name; natively it may be a number, or in small letters."""
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < len(_MODES):
        spelling["mode"] = "number"
        return _MODES[given]
    if isinstance(given, str) and given != given.upper() and given.upper() in _MODES:
        spelling["mode"] = "lower"
        return given.upper()
    return given
