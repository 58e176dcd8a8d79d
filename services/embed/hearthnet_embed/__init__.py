"""The embed service: texts as vectors, by a local model or by one behind a URL."""

from __future__ import annotations

from hearthnet_embed.service import EmbedService

__all__ = ["EmbedService"]
