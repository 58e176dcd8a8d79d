"""Tools listed by an MCP server, as contracts (docs/decisions/0106). Pure.

The name of a capability is `experimental.mcp.SERVER.TOOL`, unique for each tool. A tool whose name is valid
on the bus keeps it. Any other gets a normalized form with a piece of the hash of its real name, so that
`readFile` and `readfile` get different names, independently of the server's other tools.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from typing import Any, Final

import blake3
import msgspec

from hearthnet import HearthNetError
from hearthnet.contracts import Contract, versioned
from hearthnet.core import McpServerConfig
from hearthnet_mcp.schemas import input_schema, output_schema

PREFIX: Final = "experimental.mcp."
LONGEST_TOOL: Final = 64
_FITS: Final = re.compile(r"[a-z0-9_-]{1,64}")
_OTHER: Final = re.compile(r"[^a-z0-9_-]+")
_HASH: Final = 8
MOST_TOOLS: Final = 128
"""Tools of one server; further ones are dropped."""
MAX_CONCURRENT: Final = 8
_LONGEST_SUMMARY: Final = 160
_LONGEST_DESCRIPTION: Final = 4_000
_OBJECT: Final = {"type": "object"}
_PROGRESS: Final = {
    "type": "object",
    "required": ["current", "total", "stage"],
    "properties": {
        "current": {"type": "integer", "minimum": 0},
        "total": {"type": "integer", "minimum": 0},
        "stage": {"type": "string"},
    },
}
_OUTPUT: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["content", "is_error"],
    "properties": {
        "content": {"type": "array", "items": {"type": "object", "required": ["type"]}},
        "structured": {"description": "The result as a value, where the tool gives one"},
        "is_error": {"type": "boolean", "description": "The tool says that it failed"},
    },
}


def capabilities(server: str, tools: Iterable[str]) -> dict[str, str]:
    """Return the capability of each tool of `server`, by tool name; duplicates count once."""
    names = list(dict.fromkeys(tools))
    taken = {name for name in names if _FITS.fullmatch(name)}
    found = {}
    for name in names:
        if name in taken:
            segment = name
        else:
            segment = _segment(name, taken)
            taken.add(segment)
        found[name] = f"{PREFIX}{server}.{segment}"
    return found


def _segment(name: str, taken: set[str]) -> str:
    hashed = blake3.blake3(name.encode("utf-8", "surrogatepass")).hexdigest()
    stem = _OTHER.sub("_", name.lower()).strip("_")[: LONGEST_TOOL - _HASH - 1] or "tool"
    forms = (f"{stem}-{hashed[at : at + _HASH]}" for at in range(len(hashed) - _HASH))
    return next(form for form in forms if form not in taken)


class McpTool(msgspec.Struct, frozen=True):
    """A tool that can be offered: its name at the server, its contract, its result's schema."""

    name: str
    contract: Contract
    promised: dict[str, Any] | None = None


class ToolListing(msgspec.Struct, frozen=True):
    """The tools of a server that can be offered, and one line for each that cannot."""

    tools: tuple[McpTool, ...]
    dropped: tuple[str, ...]


def read(config: McpServerConfig, listed: Iterable[dict[str, Any]]) -> ToolListing:
    """Return the tools of the server `config`, listed in the names of the MCP schema."""
    found = list(listed)
    names = capabilities(config.name, [str(tool["name"]) for tool in found[:MOST_TOOLS]])
    tools: dict[str, McpTool] = {}
    dropped: list[str] = []
    for tool in found[:MOST_TOOLS]:
        name = str(tool["name"])
        if name in tools:
            continue
        try:
            tools[name] = _offered(config, names[name], tool)
        except HearthNetError as error:
            dropped.append(f"{name[:80]!r} is left out: {error.message}")
    if len(found) > MOST_TOOLS:
        dropped.append(f"{len(found) - MOST_TOOLS} tools are left out: {MOST_TOOLS} are offered at most")
    return ToolListing(tuple(tools.values()), tuple(dropped))


def _offered(config: McpServerConfig, capability: str, tool: dict[str, Any]) -> McpTool:
    """Return `tool` with its contract.

    The contract omits the schema of its results if that does not fit.

    Raises:
        HearthNetError: as for `contract_of`.
    """
    promised = output_schema(tool.get("outputSchema"))
    if promised is not None:
        with contextlib.suppress(HearthNetError):
            return McpTool(str(tool["name"]), contract_of(config, capability, tool, promised), promised)
    return McpTool(str(tool["name"]), contract_of(config, capability, tool))


def contract_of(
    config: McpServerConfig,
    capability: str,
    tool: dict[str, Any],
    promised: dict[str, Any] | None = None,
) -> Contract:
    """Return the contract under which `tool` is offered.

    `promised` is the schema of its results' values.

    Raises:
        HearthNetError: `bad_request` if a schema of the tool is not usable.
    """
    effects = not _only_reads(config, tool)
    description = _text(tool.get("description"), _LONGEST_DESCRIPTION)
    request: dict[str, Any] = {
        "type": "object",
        "required": ["params", "input"],
        "properties": {
            "params": {**_OBJECT, "properties": {}},
            "input": input_schema(tool.get("inputSchema")),
        },
    }
    if description:
        request["description"] = description
    try:
        return versioned(
            Contract(
                name=capability,
                version="0.0",
                stability="experimental",
                summary=_summary(tool, description),
                trust_required="member",
                side_effects=effects,
                idempotent="no",
                timeout_seconds=config.timeout_seconds,
                max_concurrent=MAX_CONCURRENT,
                request_schema=request,
                response_schema={
                    "type": "object",
                    "required": ["output", "meta"],
                    "properties": {"output": _output(promised), "meta": _OBJECT},
                },
                stream_schema={"progress": _PROGRESS, "result": _OUTPUT, "done": _OBJECT, "error": _OBJECT},
                offer_params={
                    "type": "object",
                    "properties": {"server": {"type": "string"}, "tool": {"type": "string"}},
                },
                match={},
                errors=[],
                examples=[],
                effect_scope="node" if effects else None,
                approval="any" if effects else None,
            )
        )
    except RecursionError as error:
        raise HearthNetError("bad_request", "its input schema is too deep") from error


def _output(promised: dict[str, Any] | None) -> dict[str, Any]:
    """Return the schema of the output, which contains `promised` as a whole for its readers."""
    if promised is None:
        return _OUTPUT
    fields: dict[str, Any] = _OUTPUT["properties"]
    return {
        **_OUTPUT,
        "properties": {**fields, "structured": {**fields["structured"], "allOf": [promised]}},
    }


def _only_reads(config: McpServerConfig, tool: dict[str, Any]) -> bool:
    """Return whether the tool is known to have no effects.

    The owner's list decides; the server's own hint counts only if the settings trust it.
    """
    if tool["name"] in config.read_only:
        return True
    hints = tool.get("annotations")
    return config.trust_hints and isinstance(hints, dict) and hints.get("readOnlyHint") is True


def _summary(tool: dict[str, Any], description: str) -> str:
    """Return a summary of one line."""
    line = next((line.strip() for line in description.splitlines() if line.strip()), "")
    title = _text(tool.get("title"), _LONGEST_SUMMARY)
    text = line or title or f"The tool {tool['name']}"
    return text if len(text) <= _LONGEST_SUMMARY else text[: _LONGEST_SUMMARY - 3] + "..."


def _text(value: Any, longest: int) -> str:
    """Return a text of the server without unprintable characters, at most `longest` long."""
    if not isinstance(value, str):
        return ""
    printable = "".join(letter for letter in value[: 2 * longest] if letter.isprintable() or letter in "\n\t")
    return printable[:longest].strip()
