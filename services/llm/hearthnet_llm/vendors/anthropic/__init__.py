"""Anthropic Messages, both ways without I/O; `bedrock_anthropic` is the same in another envelope."""

from __future__ import annotations

from hearthnet_llm.vendors.anthropic.answer import decoder
from hearthnet_llm.vendors.anthropic.request import SPELLINGS, encode, read

__all__ = ["SPELLINGS", "decoder", "encode", "read"]
