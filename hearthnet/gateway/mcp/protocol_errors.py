"""Errors that MCP answers as JSON-RPC; others are results with `isError`.

unknown tool                 -32602  (2025-11-25 and 2026-07-28, Tools, Error handling)
missing client capability    -32021  (2026-07-28; earlier protocols have no number of their own for it)
"""

from __future__ import annotations

from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY

from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.mcp.elicitation import CANNOT_ASK


def unknown_tool(error: HearthNetError) -> MCPError:
    """Return the error for an unknown tool; `error`, which names near ones, is in its data."""
    return MCPError(INVALID_PARAMS, error.message, {"hearthnet/error": error.to_body()})


def cannot_ask(capability: str) -> MCPError:
    """Return the error for an effect, where the client declares no elicitation by forms."""
    required: dict[str, Any] = {"elicitation": {"form": {}}}
    return MCPError(
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        f"{capability} {CANNOT_ASK}",
        {"requiredCapabilities": required},
    )
