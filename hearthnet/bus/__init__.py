"""The NATS side: connection, discovery, routing, calls and streams (wire.md)."""
