"""Tools and the choice among them, in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hearthnet_llm.interface.request import Named, Tool, ToolChoice
from hearthnet_llm.vendors.anthropic import server_tools
from hearthnet_llm.vendors.anthropic.blocks import cached, hint
from hearthnet_llm.vendors.json_access import fields, refuse, text, without_nones
from hearthnet_llm.vendors.wire import Json

_WORDS: Final[dict[str, str]] = {"auto": "auto", "none": "none", "required": "any"}


def write(tool: Tool, spelling: Mapping[str, str]) -> Json:
    """Return the native tool, in the variant of `spelling`."""
    if tool.server is not None:
        body = server_tools.write(tool.name, tool.server)
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
        server_tools.name(native, where),
        native.get("description"),
        schema if schema is None else fields(schema, f"{where}.input_schema"),
        native.get("strict"),
        hint(native),
        None if kind == "custom" else server_tools.read(text(kind, f"{where}.type"), native, where),
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
