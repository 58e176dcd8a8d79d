"""The mesh as an MCP server: `/mcp` of the gateway, and stdio (docs/mcp.md).

The MCP library takes more than a second to import and few clients need it, so it is loaded at the first
request (docs/decisions/0105).
"""

from __future__ import annotations
