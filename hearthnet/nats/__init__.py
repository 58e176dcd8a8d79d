"""The connection to the NATS server: client, parser, JetStream."""

from __future__ import annotations
