"""HearthNet's llm service: a model in the box, and any model behind an OpenAI-compatible URL."""

from __future__ import annotations

from hearthnet_llm.service import LlmService

__all__ = ["LlmService"]
