"""Tool calls: types, the loop without I/O, the executor that drives it, built-in tools."""

from __future__ import annotations
