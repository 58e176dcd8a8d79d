"""Ollama's own protocol (/api/chat) in both directions; below /v1 it has OpenAI's."""

from __future__ import annotations

from hearthnet_llm.vendors.ollama.answer import decoder
from hearthnet_llm.vendors.ollama.request import SPELLINGS, encode, loading, read

__all__ = ["SPELLINGS", "decoder", "encode", "loading", "read"]
