"""Anthropic Messages in both directions, without I/O.

`bedrock_anthropic` has the same messages in another envelope.
"""

from __future__ import annotations

from hearthnet_llm.vendors.anthropic.answer import decoder
from hearthnet_llm.vendors.anthropic.request import SPELLINGS, encode, read

__all__ = ["SPELLINGS", "decoder", "encode", "read"]
