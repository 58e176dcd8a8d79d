"""Google's Gemini (generateContent and its streaming variant), by API key or on Vertex AI."""

from __future__ import annotations

from hearthnet_llm.vendors.gemini.answer import decoder
from hearthnet_llm.vendors.gemini.request import SPELLINGS, encode, read

__all__ = ["SPELLINGS", "decoder", "encode", "read"]
