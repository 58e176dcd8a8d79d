"""Tools of MCP servers, offered on the bus as `experimental.mcp.NAME.TOOL` (docs/mcp.md)."""

from __future__ import annotations

from hearthnet_mcp.service import McpService

__all__ = ["McpService"]
