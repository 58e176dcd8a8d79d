"""HearthNet's search in the documents of the household: SQLite FTS5, and a starter corpus to begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hearthnet_rag.service import RagService

__all__ = ["RagService"]


def __getattr__(name: str) -> Any:
    """The service when it is asked for: the processes that only read documents do without."""
    if name == "RagService":
        from hearthnet_rag.service import RagService

        return RagService
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
