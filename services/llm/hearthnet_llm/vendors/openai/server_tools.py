"""Tools that the vendor runs.

Mostly they are among the tools with their settings beside `type`; OpenRouter has a prefix, and the settings
under `parameters`; OpenAI's own search is a field of the request.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet_llm.interface.request import Region, ServerTool
from hearthnet_llm.vendors.json_access import fields, refuse, text, without_nones
from hearthnet_llm.vendors.openai.dialect import Choices
from hearthnet_llm.vendors.wire import Json

SEARCH: Final = "web_search"
_PREFIX: Final = "openrouter:"
_BUILTIN: Final = "builtin_function"
"""Moonshot's type for them; their names begin with a dollar sign."""
_NAMES: Final = {
    "context_size": "search_context_size",
    "allowed_domains": "allowed_domains",
    "blocked_domains": "excluded_domains",
    "max_uses": "max_uses",
    "max_results": "max_results",
    "max_tokens": "max_completion_tokens",
    "model": "model",
    "transcript": "forward_transcript",
}
"""Settings by canonical name, with their native names."""


def write(server: ServerTool, choices: Choices) -> Json:
    """Return the native tool."""
    if choices["server_tools"] == "builtin_function":
        return {"type": _BUILTIN, "function": {"name": f"${server.kind}"}}
    if choices["server_tools"] == "flat":
        return {"type": server.kind, **without_nones(search_context_size=server.context_size)}
    settings = _settings(server)
    if server.place is not None:
        settings["user_location"] = {"type": "approximate", **msgspec.to_builtins(server.place)}
    more = {"parameters": settings} if settings or choices["no_settings"] == "empty" else {}
    return {"type": _PREFIX + server.kind, **more}


def read(native: Json, path: str, spelling: dict[str, str]) -> Json:
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
    given = native.get("parameters")
    if given == {}:
        spelling["no_settings"] = "empty"
    settings = dict(fields({} if given is None else given, f"{path}.parameters"))
    place = settings.pop("user_location", None)
    server = {"kind": kind, **_read_settings(settings, f"{path}.parameters"), **_read_place(place, path)}
    return {"name": kind, "server": server}


def write_options(server: ServerTool) -> Json:
    """Return OpenAI's own field for its search."""
    made = without_nones(search_context_size=server.context_size)
    if server.place is not None:
        made["user_location"] = {"type": "approximate", "approximate": msgspec.to_builtins(server.place)}
    return made


def read_options(native: Any) -> Json:
    """Return the canonical tool of OpenAI's own field."""
    options = fields(native, "web_search_options")
    place = options.get("user_location") or {}
    known = {"kind": SEARCH, **without_nones(context_size=options.get("search_context_size"))}
    return {
        "name": SEARCH,
        "server": {**known, **_read_place(place.get("approximate"), "web_search_options")},
    }


def _settings(server: ServerTool) -> Json:
    return without_nones(**{theirs: getattr(server, ours) for ours, theirs in _NAMES.items()})


def _read_settings(settings: Json, path: str) -> Json:
    ours = {theirs: ours for ours, theirs in _NAMES.items()}
    for name in settings:
        if name not in ours:
            refuse(f"{path}.{name}", "is no known setting of a tool that the vendor runs")
    return without_nones(**{ours[name]: value for name, value in settings.items()})


def _read_place(place: Any, path: str) -> Json:
    """Return the user's place as a field, or nothing."""
    if place is None:
        return {}
    given = fields(place, f"{path}.user_location")
    known = {name: given.get(name) for name in Region.__struct_fields__}
    return {"place": without_nones(**known)}
