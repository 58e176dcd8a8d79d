"""Search in the household's documents: SQLite FTS5, vectors, and a starter corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hearthnet_rag.service import RagService

__all__ = ["RagService"]


def __getattr__(name: str) -> Any:
    """Import the service on first access; processes that only read documents never need it."""
    if name == "RagService":
        from hearthnet_rag.service import RagService

        return RagService
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
