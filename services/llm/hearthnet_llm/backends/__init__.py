"""Models that can be called, their probing and choice."""

from __future__ import annotations
