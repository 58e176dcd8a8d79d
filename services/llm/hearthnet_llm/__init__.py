"""The llm service: a built-in model, and models behind URLs."""

from __future__ import annotations

from hearthnet_llm.service import LlmService

__all__ = ["LlmService"]
