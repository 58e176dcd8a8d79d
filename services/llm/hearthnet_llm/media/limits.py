"""Limits of images for each protocol, from the vendors' references."""

from __future__ import annotations

from typing import Final

import msgspec

_MIB: Final = 1 << 20


class ImageLimits(msgspec.Struct, frozen=True):
    """Limits of images.

    Of one image: media types, bytes (before base64), pixels of the longer side. Of a request: number of
    images, and bytes of all of them. `urls` tells that the vendor fetches images itself.
    """

    types: tuple[str, ...] = ("image/jpeg", "image/png", "image/gif", "image/webp")
    most_bytes: int = 5 * _MIB
    longest_side: int = 2048
    most_images: int = 20
    all_bytes: int = 20 * _MIB
    urls: bool = False


LIMITS: Final[dict[str, ImageLimits]] = {
    "anthropic": ImageLimits(most_bytes=5 * _MIB * 3 // 4, longest_side=1568, urls=True),
    "bedrock-anthropic": ImageLimits(most_bytes=5 * _MIB * 3 // 4, longest_side=1568),
    "bedrock-converse": ImageLimits(most_bytes=15 * _MIB // 4, longest_side=1568),
    "gemini": ImageLimits(
        ("image/jpeg", "image/png", "image/webp"), most_bytes=7 * _MIB, longest_side=3072, all_bytes=14 * _MIB
    ),
    "ollama": ImageLimits(("image/jpeg", "image/png"), longest_side=1536, most_images=8),
    "openai": ImageLimits(most_bytes=10 * _MIB, longest_side=2048, urls=True),
}
"""By the name of the protocol. The longer sides are those above which the vendor scales down anyway."""
