"""Parts other than text and calls that the API requires in later requests.

These are summaries of earlier messages, changes of the model and of the tools, and listings of MCP servers.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from hearthnet_llm.interface.content_parts import (
    ListedTool,
    ModelChangePart,
    SummaryPart,
    ToolChangePart,
    ToolListingPart,
)
from hearthnet_llm.vendors.json_access import fields, objects, refuse, text, without_nones
from hearthnet_llm.vendors.wire import Json

_CHANGES: Final[dict[str, Literal["added", "removed"]]] = {
    "tool_addition": "added",
    "tool_removal": "removed",
}
_TYPES: Final = {ours: native for native, ours in _CHANGES.items()}


def write_summary(part: SummaryPart) -> Json:
    """Return the compaction block of a summary."""
    changes = None if part.changes is None else [write_change(one) for one in part.changes]
    more = without_nones(encrypted_content=part.data, signature=part.signature, tool_changes=changes)
    return {"type": "compaction", "content": part.text, **more}


def read_summary(block: Json) -> SummaryPart:
    """Return the summary of a compaction block, without its cache hint."""
    changes = block.get("tool_changes")
    return SummaryPart(
        block.get("content"),
        block.get("encrypted_content"),
        block.get("signature"),
        None if changes is None else [read_change(one) for one in objects(changes, "tool_changes")],
    )


def write_change(part: ToolChangePart) -> Json:
    """Return the tool_addition or tool_removal block of a change."""
    if part.name is None and part.server is None:
        refuse("/input/messages", "a change of the tools names a tool, a server, or both")
    kind = "tool_reference" if part.server is None else "mcp_tool_reference"
    kind = "mcp_toolset_reference" if part.name is None else kind
    tool = {"type": kind, **without_nones(name=part.name, server_name=part.server)}
    return {"type": _TYPES[part.change], "tool": tool}


def read_change(block: Json) -> ToolChangePart:
    """Return the change of a tool_addition or tool_removal block.

    Raises:
        HearthNetError: `bad_request` if the block declares the tool itself.
    """
    tool = fields(block.get("tool"), "tool")
    if "definition" in tool:
        refuse("tool.definition", "a tool is declared among the tools, not in a message")
    return ToolChangePart(_CHANGES[block["type"]], tool.get("name"), tool.get("server_name"))


def write_fallback(part: ModelChangePart) -> Json:
    """Return the fallback block of a change of the model."""
    trigger = None if part.reason is None else {"type": part.reason, **without_nones(category=part.category)}
    sides = {"from": {"model": part.before}, "to": {"model": part.after}}
    return {"type": "fallback", **sides, **without_nones(trigger=trigger)}


def read_fallback(block: Json) -> ModelChangePart:
    """Return the change of the model in a fallback block."""
    sides = [fields(block.get(side) or {}, side).get("model") or "" for side in ("from", "to")]
    trigger = fields(block.get("trigger") or {}, "trigger")
    return ModelChangePart(sides[0], sides[1], trigger.get("type"), trigger.get("category"))


def write_listing(part: ToolListingPart) -> Json:
    """Return the mcp_tool_listing block of a listing."""
    return {"type": "mcp_tool_listing", "mcp_server_name": part.server, "tools": write_listed(part.tools)}


def read_listing(block: Json) -> ToolListingPart:
    """Return the listing of an mcp_tool_listing block."""
    return ToolListingPart(
        text(block.get("mcp_server_name"), "mcp_server_name"), read_listed(block.get("tools"))
    )


def write_listed(tools: list[ListedTool]) -> list[Json]:
    """Return native descriptions of an MCP server's tools."""
    return [
        {
            "name": tool.name,
            "input_schema": tool.parameters_schema or {},
            **without_nones(description=tool.description),
        }
        for tool in tools
    ]


def read_listed(native: Any) -> list[ListedTool]:
    """Return the tools in native descriptions."""
    return [
        ListedTool(text(tool.get("name"), "name"), tool.get("description"), tool.get("input_schema"))
        for tool in objects(native, "tools")
    ]
