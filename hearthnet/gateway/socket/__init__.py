"""The WebSocket protocol `hearthnet-bus.v2` (docs/gateway.md, "WebSocket")."""
