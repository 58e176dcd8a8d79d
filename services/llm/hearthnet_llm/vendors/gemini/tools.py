"""Tools and the choice among them, in both directions.

Tools that Google runs have settings of their own, and some use the user's place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hearthnet_llm.interface.request import ChatRequest, Named, Region, ServerTool, Tool, ToolChoice
from hearthnet_llm.vendors.field_tables import read_fields, same_names, write_fields
from hearthnet_llm.vendors.gemini import dialect
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
    "enterpriseWebSearch": {"blocked_domains": "excludeDomains"},
    "fileSearch": {"sources": "fileSearchStoreNames", "max_results": "topK", "filter": "metadataFilter"},
    "computerUse": {"environment": "environment", "excluded": "excludedPredefinedFunctions"},
    "googleMaps": {"widget": "enableWidget"},
}
_FINDS: Final = {"web": "webSearch", "image": "imageSearch"}
_TIME_RANGE: Final = {"since": "startTime", "until": "endTime"}
_DEGREES: Final = same_names("latitude", "longitude")
_DYNAMIC: Final = "MODE_DYNAMIC"
_PLACED: Final = ("maps", "web_search", "enterprise_web_search", "web_search_retrieval")
"""Tools that use a place; those whose results depend on it most come first."""


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
        native = _write_server_tool(tool.server) if tool.server else {_FUNCTIONS: [_write(tool, spelling)]}
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
    schemas = without_nones(parameters=tool.parameters_schema, response=tool.result_schema)
    if spelling.get("parameters") == "parameters":
        return {**named, **{name: dialect.write_schema(one, spelling) for name, one in schemas.items()}}
    return {**named, **{f"{name}{_PLAIN}": one for name, one in schemas.items()}}


def _config(request: ChatRequest, spelling: Mapping[str, str]) -> Json:
    made: Json = {}
    if request.show_server_tools is not None:
        made["includeServerSideToolInvocations"] = request.show_server_tools
    retrieving = _write_place(request.tools or [])
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
    forms = {"number": _MODES.index(mode), "lower": mode.lower()}
    form = forms.get(spelling.get("mode", ""), mode)
    return {"mode": form, **without_nones(allowedFunctionNames=names)}


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
        _read_place(fields(config["retrievalConfig"], where), made.setdefault("tools", []), where)
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
                tools.append(_read_server_tool(name, fields(value, where), where))
    return tools


def _read(native: Json, where: str, spelling: dict[str, str]) -> Tool:
    if native.get("behavior") is not None:
        refuse(f"{where}.behavior", "a call that is answered later is not known; leave it out")
    schemas = {}
    for name, ours in (("parameters", "parameters_schema"), ("response", "result_schema")):
        found = native.get(f"{name}{_PLAIN}")
        if native.get(name) is not None:
            spelling["parameters"] = "parameters"
            found = dialect.read_schema(fields(native[name], f"{where}.{name}"), spelling)
        schemas[ours] = found
    return Tool(text(native.get("name"), f"{where}.name"), native.get("description"), **schemas)


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


def _read_mode(native: Any, spelling: dict[str, str]) -> Any:
    """Return the mode by its name; natively it may be a number, or in small letters."""
    if isinstance(native, int) and not isinstance(native, bool) and 0 <= native < len(_MODES):
        spelling["mode"] = "number"
        return _MODES[native]
    if isinstance(native, str) and native != native.upper() and native.upper() in _MODES:
        spelling["mode"] = "lower"
        return native.upper()
    return native


def _write_server_tool(tool: ServerTool) -> Json:
    """Return the native tool.

    Raises:
        HearthNetError: `bad_request` for a tool that this vendor lacks.
    """
    native = _KINDS.get(tool.kind)
    if native is None:
        refuse("/input/tools", f"Gemini has no tool {tool.kind}; it has {', '.join(_KINDS)}")
    body = write_fields(tool, _SETTINGS.get(native, {}))
    if native == "googleSearch":
        body |= _search(tool)
    if native == "googleSearchRetrieval" and tool.threshold is not None:
        body["dynamicRetrievalConfig"] = {"mode": _DYNAMIC, "dynamicThreshold": tool.threshold}
    return {native: body}


def _search(tool: ServerTool) -> Json:
    body: Json = {}
    if tool.since is not None or tool.until is not None:
        body["timeRangeFilter"] = write_fields(tool, _TIME_RANGE)
    if tool.finds is not None:
        body["searchTypes"] = {_FINDS[kind]: {} for kind in tool.finds if kind in _FINDS}
    return body


def _read_server_tool(name: str, native: Json, where: str) -> Tool:
    """Return the tool of a native one; `native` is the value of its field `name`."""
    kind = next((ours for ours, its in _KINDS.items() if its == name), None)
    if kind is None:
        refuse(where, f"no tool {name!r} is known")
    left = {setting: value for setting, value in native.items() if value is not None}
    found = {ours: left.pop(its, None) for ours, its in _SETTINGS.get(name, {}).items()}
    if name == "googleSearch":
        found |= _read_search(left, where)
    if name == "googleSearchRetrieval":
        found |= _read_dynamic(left.pop("dynamicRetrievalConfig", None), where)
    if left:
        refuse(where, f"no setting {', '.join(left)} is known")
    return Tool(kind, server=ServerTool(kind=kind, **found))


def _read_search(left: Json, where: str) -> Json:
    found: Json = {}
    if "timeRangeFilter" in left:
        time = fields(left.pop("timeRangeFilter"), f"{where}.timeRangeFilter")
        found |= read_fields(time, _TIME_RANGE)
    if "searchTypes" in left:
        kinds = fields(left.pop("searchTypes"), f"{where}.searchTypes")
        found["finds"] = [ours for ours, its in _FINDS.items() if kinds.get(its) is not None]
    return found


def _read_dynamic(native: Any, where: str) -> Json:
    if native is None:
        return {}
    config = fields(native, f"{where}.dynamicRetrievalConfig")
    if config.get("mode") != _DYNAMIC or config.get("dynamicThreshold") is None:
        refuse(f"{where}.dynamicRetrievalConfig", f"must have the mode {_DYNAMIC} and a dynamicThreshold")
    return {"threshold": config["dynamicThreshold"]}


def _write_place(tools: list[Tool]) -> Json:
    """Return the field `retrievalConfig` with the first tool's place, {} without a place."""
    place = next((tool.server.place for tool in tools if tool.server and tool.server.place), None)
    if place is None or (place.latitude is None and place.language is None):
        return {}
    degrees = write_fields(place, _DEGREES)
    return {**({"latLng": degrees} if degrees else {}), **without_nones(languageCode=place.language)}


def _read_place(native: Json, tools: list[Tool], where: str) -> None:
    """Assign the place of a `retrievalConfig` to the tool among `tools` that uses it."""
    degrees = fields(native.get("latLng") or {}, f"{where}.latLng")
    place = Region(**read_fields(degrees, _DEGREES), language=native.get("languageCode"))
    for kind in _PLACED:
        for number, tool in enumerate(tools):
            if tool.server is not None and tool.server.kind == kind:
                server = msgspec.structs.replace(tool.server, place=place)
                tools[number] = msgspec.structs.replace(tool, server=server)
                return
    refuse(where, f"is for a tool that asks from a place: {', '.join(_KINDS[kind] for kind in _PLACED)}")
