"""HearthNet's embed service: texts as vectors, by a model in the box or one behind a URL."""

from __future__ import annotations

from hearthnet_embed.service import EmbedService

__all__ = ["EmbedService"]
