"""The llm service: a built-in model, and models behind URLs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hearthnet_llm.service import LlmService

__all__ = ["LlmService"]


def __getattr__(name: str) -> Any:
    """Import the service on first access; the process that decodes images never needs it."""
    if name == "LlmService":
        from hearthnet_llm.service import LlmService

        return LlmService
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
