"""The nats-server process: settings, access control, links between homes."""

from __future__ import annotations
