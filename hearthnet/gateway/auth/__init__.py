"""Clients of the gateway: keys, sessions, login links, scopes."""

from __future__ import annotations
