"""Calls and streams with failover between providers."""

from __future__ import annotations
