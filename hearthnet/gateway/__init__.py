"""The node's gateway for web pages and programs (docs/gateway.md).

Run it with `python -m hearthnet.gateway --home DIR`.
"""
