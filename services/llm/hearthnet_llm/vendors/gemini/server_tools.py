"""Tools that Google runs, with their settings, and the user's place."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet_llm.interface.request import Region, ServerTool, Tool
from hearthnet_llm.vendors.json_access import fields, refuse, without_nones
from hearthnet_llm.vendors.wire import Json

KINDS: Final[dict[str, str]] = {
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
_DYNAMIC: Final = "MODE_DYNAMIC"
_PLACED: Final = ("maps", "web_search", "enterprise_web_search", "web_search_retrieval")
"""Tools that use a place; those whose results depend on it most come first."""


def write(tool: ServerTool) -> Json:
    """Return the native tool.

    Raises:
        HearthNetError: `bad_request` for a tool that this vendor lacks.
    """
    native = KINDS.get(tool.kind)
    if native is None:
        refuse("/input/tools", f"Gemini has no tool {tool.kind}; it has {', '.join(KINDS)}")
    body = without_nones(**{its: getattr(tool, ours) for ours, its in _SETTINGS.get(native, {}).items()})
    if native == "googleSearch":
        body |= _search(tool)
    if native == "googleSearchRetrieval" and tool.threshold is not None:
        body["dynamicRetrievalConfig"] = {"mode": _DYNAMIC, "dynamicThreshold": tool.threshold}
    return {native: body}


def _search(tool: ServerTool) -> Json:
    body: Json = {}
    if tool.since is not None or tool.until is not None:
        body["timeRangeFilter"] = without_nones(startTime=tool.since, endTime=tool.until)
    if tool.finds is not None:
        body["searchTypes"] = {_FINDS[kind]: {} for kind in tool.finds if kind in _FINDS}
    return body


def read(name: str, native: Json, where: str) -> Tool:
    """Return the tool of a native one; `native` is the value of its field `name`."""
    kind = next((ours for ours, its in KINDS.items() if its == name), None)
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
        found |= {"since": time.get("startTime"), "until": time.get("endTime")}
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


def write_place(tools: list[Tool]) -> Json:
    """Return the field `retrievalConfig` with the first tool's place, {} without a place."""
    place = next((tool.server.place for tool in tools if tool.server and tool.server.place), None)
    if place is None or (place.latitude is None and place.language is None):
        return {}
    degrees = without_nones(latitude=place.latitude, longitude=place.longitude)
    return {**({"latLng": degrees} if degrees else {}), **without_nones(languageCode=place.language)}


def read_place(native: Json, tools: list[Tool], where: str) -> None:
    """Assign the place of a `retrievalConfig` to the tool among `tools` that uses it."""
    degrees = fields(native.get("latLng") or {}, f"{where}.latLng")
    place = Region(
        latitude=degrees.get("latitude"),
        longitude=degrees.get("longitude"),
        language=native.get("languageCode"),
    )
    for kind in _PLACED:
        for number, tool in enumerate(tools):
            if tool.server is not None and tool.server.kind == kind:
                server = msgspec.structs.replace(tool.server, place=place)
                tools[number] = msgspec.structs.replace(tool, server=server)
                return
    refuse(where, f"is for a tool that asks from a place: {', '.join(KINDS[kind] for kind in _PLACED)}")
