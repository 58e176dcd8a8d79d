"""Tool calls: their types, the loop without I/O, the executor that drives it, the built-in tools."""

from __future__ import annotations
