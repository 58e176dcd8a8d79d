"""The index on disk."""

from __future__ import annotations
