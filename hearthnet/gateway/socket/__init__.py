"""The WebSocket protocol `hearthnet-bus.v2` at `/v1/socket`.

See: docs/gateway.md, "WebSocket".
"""

from __future__ import annotations
