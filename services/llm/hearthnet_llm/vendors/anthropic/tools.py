"""Tools and the choice among them, in both directions.

The vendor's own tools and sets of tools are `{kind}_{date}`, each with fields of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from hearthnet_llm.interface.content_parts import CacheHint
from hearthnet_llm.interface.request import (
    Member,
    Named,
    Opened,
    Region,
    Screen,
    ServerTool,
    Tool,
    ToolChoice,
)
from hearthnet_llm.vendors.anthropic.blocks import cached, ephemeral, hint, read_listed, write_listed
from hearthnet_llm.vendors.field_tables import our_word, read_fields, same_names, write_fields
from hearthnet_llm.vendors.json_access import fields, objects, refuse, text, without_nones
from hearthnet_llm.vendors.wire import Json

_WORDS: Final[dict[Any, str]] = {
    "auto": "auto",
    "none": "none",
    "required": "any",
}
_DATED: Final = re.compile(r"(?P<kind>[a-z][a-z0-9_]*)_(?P<version>\d{8})")
_FIELDS: Final[dict[str, str]] = {
    **same_names("description", "strict"),
    "deferred": "defer_loading",
    "examples": "input_examples",
    "callers": "allowed_callers",
    "eager": "eager_input_streaming",
}
_SERVER_FIELDS: Final[dict[str, str]] = {
    **same_names("max_uses", "max_characters", "allowed_domains", "blocked_domains"),
    **same_names("model", "use_cache", "citations"),
    "inclusion": "response_inclusion",
    "place": "user_location",
    "prompt_cache": "caching",
    "opens": "url_sources",
    "usual": "default_config",
    "members": "configs",
    "listed": "tools",
}
_MEMBER: Final = {"enabled": "enabled", "deferred": "defer_loading"}
_SCREEN: Final[dict[str, str]] = {
    "width": "display_width_px",
    "height": "display_height_px",
    "number": "display_number",
    "zoom": "enable_zoom",
}
_PLACE: Final = same_names("city", "region", "country", "timezone")
_ADVISOR: Final = "advisor"
_MCP: Final = "mcp_toolset"
"""All tools of one MCP server that the vendor calls itself."""
_USUAL: Final = {
    "web_search": "20250305",
    "web_fetch": "20250910",
    "code_execution": "20250825",
    "bash": "20250124",
    "memory": "20250818",
}
"""Default version of a tool: the first that is no beta, which all models with the tool support."""
_SET: Final = "_toolset"
"""Ends the kind of a set of tools; only that of an MCP server has a name."""


def write(tool: Tool, spelling: Mapping[str, str]) -> Json:
    """Return the native tool, in the variant of `spelling`."""
    if tool.server is not None:
        body = _write_server_tool(tool.name, tool.server)
    else:
        typed = {"type": "custom"} if spelling.get("tool_type") == "custom" else {}
        body = {**typed, "name": tool.name, "input_schema": tool.schema}
    return {**body, **write_fields(tool, _FIELDS), **cached(tool.cache)}


def read(native: Json, where: str, spelling: dict[str, str]) -> Tool:
    """Return the tool of a native one; records its variant in `spelling`."""
    kind = native.get("type") or "custom"
    if native.get("type") == "custom":
        spelling["tool_type"] = "custom"
    schema = native.get("input_schema")
    return Tool(
        _tool_name(native, where),
        parameters_schema=schema if schema is None else fields(schema, f"{where}.input_schema"),
        cache=hint(native),
        server=None if kind == "custom" else _read_server_tool(text(kind, f"{where}.type"), native, where),
        **read_fields(native, _FIELDS),
    )


def allowed(tools: list[Tool], choice: ToolChoice | None) -> list[Tool]:
    """Return the tools that may be declared: for a choice among several, only those and the vendor's own."""
    if not isinstance(choice, Named) or (choice.required and not choice.others):
        return tools
    return [tool for tool in tools if tool.server is not None or tool.name in (choice.name, *choice.others)]


def write_choice(choice: ToolChoice | None, parallel: bool | None) -> Json | None:
    """Return the native tool choice, or None without one.

    For a choice among several, the tools were reduced before.
    """
    if choice is None and parallel is None:
        return None
    serial = {} if parallel is None or choice == "none" else {"disable_parallel_tool_use": not parallel}
    if isinstance(choice, Named):
        if choice.others or not choice.required:
            return {"type": "any" if choice.required else "auto", **serial}
        return {"type": "tool", "name": choice.name, **serial}
    return {"type": _WORDS[choice or "auto"], **serial}


def read_choice(native: Any) -> tuple[ToolChoice | None, bool | None]:
    """Return the choice, and whether several calls may come at once."""
    if native is None:
        return None, None
    found = fields(native, "tool_choice")
    serial = found.get("disable_parallel_tool_use")
    parallel = None if serial is None else not serial
    kind = found.get("type")
    if kind == "tool":
        return Named(text(found.get("name"), "tool_choice.name")), parallel
    return our_word(_WORDS, kind or "", "tool_choice.type"), parallel


def _tool_name(native: Json, where: str) -> str:
    """Return the name of any native tool; a set without one is named after its kind."""
    kind = native.get("type")
    if kind == _MCP:
        return text(native.get("mcp_server_name"), f"{where}.mcp_server_name")
    if isinstance(kind, str) and _kind(kind)[0].endswith(_SET):
        return _kind(kind)[0]
    return text(native.get("name"), f"{where}.name")


def _write_server_tool(named: str, tool: ServerTool) -> Json:
    """Return the native tool."""
    version = tool.version or _USUAL.get(tool.kind)
    if version is None and tool.kind != _MCP:
        refuse(
            "/input/tools",
            f"Anthropic has no {tool.kind} without a version; without one it has {', '.join(_USUAL)}",
        )
    body: Json = {"type": f"{tool.kind}_{version}" if version else tool.kind}
    if tool.kind == _MCP:
        body["mcp_server_name"] = named
    elif not tool.kind.endswith(_SET):
        body["name"] = named
    body |= without_nones(**{_limit(tool.kind): tool.max_tokens})
    if tool.screen is not None:
        body |= write_fields(tool.screen, _SCREEN)
    return body | write_fields(tool, _SERVER_FIELDS, _WRITTEN)


def _read_server_tool(native_kind: str, native: Json, where: str) -> ServerTool:
    """Return the tool of a native one, without its name."""
    kind, version = _kind(native_kind)
    screen = read_fields(native, _SCREEN)
    return ServerTool(
        kind=kind,
        version=version,
        max_tokens=native.get(_limit(kind)),
        screen=Screen(**screen) if screen["width"] and screen["height"] else None,
        **read_fields(native, _SERVER_FIELDS, _READ, f"{where}."),
    )


def _kind(native: str) -> tuple[str, str | None]:
    dated = _DATED.fullmatch(native)
    return (dated["kind"], dated["version"]) if dated else (native, None)


def _limit(kind: str) -> str:
    """Return the field that limits its tokens: those it writes, or those it reads."""
    return "max_tokens" if kind == _ADVISOR else "max_content_tokens"


def _write_opens(sources: dict[str, Opened]) -> Json:
    made: Json = {}
    for source, opened in sources.items():
        named = [{"type": "tool_reference", "name": name} for name in opened.tools or ()]
        made[source] = {"type": opened.which, **({} if opened.tools is None else {"tools": named})}
    return made


def _read_opens(native: Any, where: str) -> dict[str, Opened]:
    made = {}
    for source, value in fields(native, where).items():
        opened = fields(value, f"{where}.{source}")
        tools = [text(one.get("name"), "name") for one in objects(opened.get("tools"), f"{where}.{source}")]
        which = opened.get("type")
        if which not in ("all", "none", "only", "except"):
            refuse(f"{where}.{source}.type", f"no choice {which!r} is known")
        made[source] = Opened(which, tools if "tools" in opened else None)
    return made


def _write_member(member: Member) -> Json:
    return write_fields(member, _MEMBER)


def _read_member(native: Any, where: str) -> Member:
    return Member(**read_fields(fields(native, where), _MEMBER))


_WRITTEN: Final[dict[str, Callable[[Any], Json | list[Json]]]] = {
    "place": lambda place: {"type": "approximate", **write_fields(place, _PLACE)},
    "citations": lambda enabled: {"enabled": enabled},
    "prompt_cache": ephemeral,
    "opens": _write_opens,
    "usual": _write_member,
    "members": lambda members: {name: _write_member(member) for name, member in members.items()},
    "listed": write_listed,
}
"""Writers of fields that natively have another form, and below their readers."""
_READ: Final[dict[str, Callable[[Any, str], Any]]] = {
    "place": lambda native, where: Region(**read_fields(fields(native, where), _PLACE)),
    "citations": lambda native, where: fields(native, where).get("enabled"),
    "prompt_cache": lambda native, where: CacheHint(fields(native, where).get("ttl")),
    "opens": _read_opens,
    "usual": _read_member,
    "members": lambda native, where: {
        name: _read_member(one or {}, f"{where}.{name}") for name, one in fields(native, where).items()
    },
    "listed": read_listed,
}
