"""The node's door for web pages and programs (docs/gateway.md). `python -m hearthnet.gateway --home DIR`."""
