"""Ollama's own wire (/api/chat), both ways without I/O; below /v1 it speaks OpenAI's."""

from __future__ import annotations

from hearthnet_llm.vendors.ollama.answer import decoder
from hearthnet_llm.vendors.ollama.request import SPELLINGS, encode, loading, read

__all__ = ["SPELLINGS", "decoder", "encode", "loading", "read"]
