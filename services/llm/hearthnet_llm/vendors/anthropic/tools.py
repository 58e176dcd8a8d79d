"""Tools and the choice among them, both ways. The vendor's own tools are `{kind}_{date}`, with own fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from hearthnet_llm.request import Named, Place, Screen, ServerTool, Tool, ToolChoice
from hearthnet_llm.vendors.anthropic.blocks import cached, hint
from hearthnet_llm.vendors.reading import fields, refuse, text, without_nones
from hearthnet_llm.vendors.wire import Json

_DATED: Final = re.compile(r"(?P<kind>[a-z][a-z0-9_]*)_(?P<version>\d{8})")
_OWN: Final[dict[str, str]] = {
    "max_uses": "max_uses",
    "max_tokens": "max_content_tokens",
    "max_characters": "max_characters",
    "allowed_domains": "allowed_domains",
    "blocked_domains": "blocked_domains",
}
_SCREEN: Final[dict[str, str]] = {
    "width": "display_width_px",
    "height": "display_height_px",
    "number": "display_number",
}
_MCP: Final = "mcp_toolset"
"""All tools of one MCP server that the vendor calls itself."""
_MCP_NAME: Final = "mcp_server_name"
_WORDS: Final[dict[str, str]] = {"auto": "auto", "none": "none", "required": "any"}


def write(tool: Tool, spelling: Mapping[str, str]) -> Json:
    """The native tool, as `spelling` has it."""
    if tool.server is not None:
        named = _MCP_NAME if tool.server.kind == _MCP else "name"
        body = {named: tool.name, **_write_server(tool.server)}
    else:
        typed = {"type": "custom"} if spelling.get("tool_type") == "custom" else {}
        eager = {"eager_input_streaming": True} if spelling.get("arguments") == "eager" else {}
        body = {**typed, **eager, "name": tool.name, "input_schema": tool.schema}
    return {
        **body,
        **without_nones(
            description=tool.description,
            strict=tool.strict,
            defer_loading=tool.deferred,
            input_examples=tool.examples,
            allowed_callers=tool.callers,
        ),
        **cached(tool.cache),
    }


def read(native: Json, where: str, spelling: dict[str, str]) -> Tool:
    """The tool of a native one; notes in `spelling` how it stood."""
    kind = native.get("type") or "custom"
    if native.get("type") == "custom":
        spelling["tool_type"] = "custom"
    if native.get("eager_input_streaming"):
        spelling["arguments"] = "eager"
    schema = native.get("input_schema")
    named = _MCP_NAME if kind == _MCP else "name"
    return Tool(
        text(native.get(named), f"{where}.{named}"),
        native.get("description"),
        schema if schema is None else fields(schema, f"{where}.input_schema"),
        native.get("strict"),
        hint(native),
        None if kind == "custom" else _read_server(text(kind, f"{where}.type"), native, where),
        native.get("defer_loading"),
        native.get("input_examples"),
        native.get("allowed_callers"),
    )


def _write_server(tool: ServerTool) -> Json:
    body: Json = {"type": f"{tool.kind}_{tool.version}" if tool.version else tool.kind}
    body |= without_nones(**{native: getattr(tool, ours) for ours, native in _OWN.items()})
    if tool.screen is not None:
        body |= without_nones(**{native: getattr(tool.screen, ours) for ours, native in _SCREEN.items()})
    if tool.place is not None:
        place = {name: getattr(tool.place, name) for name in Place.__struct_fields__}
        body["user_location"] = {"type": "approximate", **without_nones(**place)}
    if tool.citations is not None:
        body["citations"] = {"enabled": tool.citations}
    return body


def _read_server(kind: str, native: Json, where: str) -> ServerTool:
    dated = _DATED.fullmatch(kind)
    place, cited = native.get("user_location"), native.get("citations")
    width, height = native.get("display_width_px"), native.get("display_height_px")
    return ServerTool(
        kind=dated["kind"] if dated else kind,
        version=dated["version"] if dated else None,
        place=None if place is None else _place(fields(place, f"{where}.user_location")),
        screen=Screen(width, height, native.get("display_number")) if width and height else None,
        citations=None if cited is None else fields(cited, f"{where}.citations").get("enabled"),
        **{ours: native.get(its) for ours, its in _OWN.items()},
    )


def _place(native: Json) -> Place:
    return Place(**{name: native.get(name) for name in Place.__struct_fields__})


def write_choice(choice: ToolChoice | None, parallel: bool | None) -> Json | None:
    """The native tool choice; None where nothing is chosen. A choice among several has narrowed the tools
    before.
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
    """The choice, and whether several calls may come at once."""
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
