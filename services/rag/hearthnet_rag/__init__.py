"""HearthNet's search in the documents of the household: SQLite FTS5, and a starter corpus to begin with."""

from __future__ import annotations

from hearthnet_rag.service import RagService

__all__ = ["RagService"]
