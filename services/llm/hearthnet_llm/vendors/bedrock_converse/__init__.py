"""Amazon Bedrock's Converse, one protocol for all its models, in both directions, no I/O."""

from __future__ import annotations

from hearthnet_llm.vendors.bedrock_converse.answer import decoder
from hearthnet_llm.vendors.bedrock_converse.request import SPELLINGS, encode, read

__all__ = ["SPELLINGS", "decoder", "encode", "read"]
