"""Finding providers and choosing one."""

from __future__ import annotations
