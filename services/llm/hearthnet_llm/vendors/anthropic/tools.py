"""Tools and the choice among them, in both directions.

The vendor's own tools and sets of tools are `{kind}_{date}`, each with fields of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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
from hearthnet_llm.vendors.json_access import fields, objects, refuse, text, without_nones
from hearthnet_llm.vendors.wire import Json

_WORDS: Final[dict[str, str]] = {"auto": "auto", "none": "none", "required": "any"}
_DATED: Final = re.compile(r"(?P<kind>[a-z][a-z0-9_]*)_(?P<version>\d{8})")
_NATIVE_TOOLS: Final[dict[str, str]] = {
    "max_uses": "max_uses",
    "max_characters": "max_characters",
    "allowed_domains": "allowed_domains",
    "blocked_domains": "blocked_domains",
    "model": "model",
    "use_cache": "use_cache",
    "inclusion": "response_inclusion",
}
_SCREEN: Final[dict[str, str]] = {
    "width": "display_width_px",
    "height": "display_height_px",
    "number": "display_number",
    "zoom": "enable_zoom",
}
_PLACE: Final = ("city", "region", "country", "timezone")
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
    return {
        **body,
        **without_nones(
            description=tool.description,
            strict=tool.strict,
            defer_loading=tool.deferred,
            input_examples=tool.examples,
            allowed_callers=tool.callers,
            eager_input_streaming=tool.eager,
        ),
        **cached(tool.cache),
    }


def read(native: Json, where: str, spelling: dict[str, str]) -> Tool:
    """Return the tool of a native one; records its variant in `spelling`."""
    kind = native.get("type") or "custom"
    if native.get("type") == "custom":
        spelling["tool_type"] = "custom"
    schema = native.get("input_schema")
    return Tool(
        _tool_name(native, where),
        native.get("description"),
        schema if schema is None else fields(schema, f"{where}.input_schema"),
        native.get("strict"),
        hint(native),
        None if kind == "custom" else _read_server_tool(text(kind, f"{where}.type"), native, where),
        native.get("defer_loading"),
        native.get("input_examples"),
        native.get("allowed_callers"),
        eager=native.get("eager_input_streaming"),
    )


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
    for ours, its in _WORDS.items():
        if its == kind:
            return ours, parallel  # type: ignore[return-value]
    refuse("tool_choice.type", f"no choice {kind!r} is known")


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
    body |= without_nones(**{native: getattr(tool, ours) for ours, native in _NATIVE_TOOLS.items()})
    body |= without_nones(**{_limit(tool.kind): tool.max_tokens})
    if tool.screen is not None:
        body |= without_nones(**{native: getattr(tool.screen, ours) for ours, native in _SCREEN.items()})
    if tool.place is not None:
        place = {name: getattr(tool.place, name) for name in _PLACE}
        body["user_location"] = {"type": "approximate", **without_nones(**place)}
    if tool.citations is not None:
        body["citations"] = {"enabled": tool.citations}
    if tool.prompt_cache is not None:
        body["caching"] = ephemeral(tool.prompt_cache)
    return {**body, **_write_opens(tool), **_write_set(tool)}


def _read_server_tool(native_kind: str, native: Json, where: str) -> ServerTool:
    """Return the tool of a native one, without its name."""
    kind, version = _kind(native_kind)
    place, cited, cache = native.get("user_location"), native.get("citations"), native.get("caching")
    width, height = native.get("display_width_px"), native.get("display_height_px")
    seen = (native.get("display_number"), native.get("enable_zoom"))
    return ServerTool(
        kind=kind,
        version=version,
        max_tokens=native.get(_limit(kind)),
        place=None if place is None else _place(fields(place, f"{where}.user_location")),
        screen=Screen(width, height, *seen) if width and height else None,
        citations=None if cited is None else fields(cited, f"{where}.citations").get("enabled"),
        prompt_cache=None if cache is None else CacheHint(fields(cache, f"{where}.caching").get("ttl")),
        opens=_read_opens(native.get("url_sources"), f"{where}.url_sources"),
        **{ours: native.get(its) for ours, its in _NATIVE_TOOLS.items()},
        **_read_set(native, where),
    )


def _kind(native: str) -> tuple[str, str | None]:
    dated = _DATED.fullmatch(native)
    return (dated["kind"], dated["version"]) if dated else (native, None)


def _limit(kind: str) -> str:
    """Return the field that limits its tokens: those it writes, or those it reads."""
    return "max_tokens" if kind == _ADVISOR else "max_content_tokens"


def _place(native: Json) -> Region:
    return Region(**{name: native.get(name) for name in _PLACE})


def _write_opens(tool: ServerTool) -> Json:
    if tool.opens is None:
        return {}
    made: Json = {}
    for source, opened in tool.opens.items():
        named = [{"type": "tool_reference", "name": name} for name in opened.tools or ()]
        made[source] = {"type": opened.which, **({} if opened.tools is None else {"tools": named})}
    return {"url_sources": made}


def _read_opens(native: Any, where: str) -> dict[str, Opened] | None:
    if native is None:
        return None
    made = {}
    for source, value in fields(native, where).items():
        opened = fields(value, f"{where}.{source}")
        tools = [text(one.get("name"), "name") for one in objects(opened.get("tools"), f"{where}.{source}")]
        which = opened.get("type")
        if which not in ("all", "none", "only", "except"):
            refuse(f"{where}.{source}.type", f"no choice {which!r} is known")
        made[source] = Opened(which, tools if "tools" in opened else None)
    return made


def _write_set(tool: ServerTool) -> Json:
    usual = None if tool.usual is None else _write_member(tool.usual)
    members = tool.members
    configs = None if members is None else {name: _write_member(one) for name, one in members.items()}
    listed = None if tool.listed is None else write_listed(tool.listed)
    return without_nones(default_config=usual, configs=configs, tools=listed)


def _read_set(native: Json, where: str) -> Json:
    usual, configs = native.get("default_config"), native.get("configs")
    listed = native.get("tools")
    members = {} if configs is None else fields(configs, f"{where}.configs")
    return {
        "usual": None if usual is None else _read_member(usual, f"{where}.default_config"),
        "members": None
        if configs is None
        else {name: _read_member(one or {}, f"{where}.configs.{name}") for name, one in members.items()},
        "listed": None if listed is None else read_listed(listed),
    }


def _write_member(member: Member) -> Json:
    return without_nones(enabled=member.enabled, defer_loading=member.deferred)


def _read_member(native: Any, where: str) -> Member:
    found = fields(native, where)
    return Member(found.get("enabled"), found.get("defer_loading"))
