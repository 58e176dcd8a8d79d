"""Fitting of one image to limits: unchanged if possible, else rotated, scaled, re-encoded.

The attempts, in order: the image unchanged; scaled to the longest side; as PNG if it has transparency and is
small enough, else as JPEG on white with decreasing quality; then ever smaller.
"""

from __future__ import annotations

import struct
from io import BytesIO
from typing import TYPE_CHECKING, Final

from hearthnet import HearthNetError
from hearthnet_llm.media.limits import ImageLimits

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_BYTES: Final = 32 << 20
MOST_PIXELS: Final = 50_000_000
"""Limit of images that are decoded; a larger one would fill the memory."""

_QUALITIES: Final = (90, 80, 65, 50)
_SMALLER: Final = 0.7
_SMALLEST_SIDE: Final = 64
_READ: Final = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")
_UNREADABLE: Final = (OSError, ValueError, SyntaxError, EOFError, struct.error)
"""Exceptions of the library for damaged files and for files that are no images."""
_UPRIGHT: Final = 0x0112
"""The EXIF tag with the orientation of the camera."""


def fit_image(data: bytes, limits: ImageLimits, path: str) -> tuple[bytes, str]:
    """Return bytes and media type of the image within `limits`.

    `path` is the path of the part, for errors.

    Raises:
        HearthNetError: `bad_request` if it is no image or is too large to be decoded.
    """
    image = _opened(data, path)
    kind = f"image/{str(image.format).lower()}"
    small = len(data) <= limits.most_bytes and max(image.size) <= limits.longest_side
    try:
        if kind in limits.types and small and image.getexif().get(_UPRIGHT, 1) == 1:
            return data, kind
        image.draft("RGB", (limits.longest_side, limits.longest_side))  # decode a large JPEG at reduced size
        pixels = _loaded(image)
    except _UNREADABLE as error:
        raise _refusal(path, "the image is damaged; send it again") from error
    return _made(pixels, limits, path)


def _opened(data: bytes, path: str) -> Image:
    from PIL import Image as Pillow

    if len(data) > MOST_BYTES:
        raise _refusal(path, f"the image has {len(data) >> 20} MiB; at most {MOST_BYTES >> 20} are read")
    try:
        image = Pillow.open(BytesIO(data), formats=_READ)
    except (*_UNREADABLE, Pillow.DecompressionBombError, Pillow.DecompressionBombWarning) as error:
        raise _refusal(path, "this is no image that can be read; send PNG, JPEG, GIF or WebP") from error
    if image.width * image.height > MOST_PIXELS:
        size = f"{image.width} x {image.height}"
        raise _refusal(
            path, f"the image has {size} pixels; send one of at most {MOST_PIXELS // 10**6} million"
        )
    return image


def _loaded(image: Image) -> Image:
    """Return the upright pixels, with transparency, of the first frame."""
    from PIL import ImageOps

    turned = ImageOps.exif_transpose(image)
    clear = "A" in turned.getbands() or "transparency" in turned.info
    return turned.convert("RGBA" if clear else "RGB")


def _made(image: Image, limits: ImageLimits, path: str) -> tuple[bytes, str]:
    longest = min(limits.longest_side, max(image.size))
    while longest >= min(_SMALLEST_SIDE, max(image.size)):
        scaled = image.copy()
        scaled.thumbnail((longest, longest))
        if (made := _small_enough(scaled, limits)) is not None:
            return made
        longest = int(longest * _SMALLER)
    raise _refusal(path, f"the image cannot be made as small as {limits.most_bytes} bytes")


def _small_enough(image: Image, limits: ImageLimits) -> tuple[bytes, str] | None:
    """Return the image in the best format that fits, or None."""
    if image.mode == "RGBA" and "image/png" in limits.types:
        data = _saved(image, "PNG")
        if len(data) <= limits.most_bytes:
            return data, "image/png"
    flat = _on_white(image)
    for quality in _QUALITIES:
        data = _saved(flat, "JPEG", quality)
        if len(data) <= limits.most_bytes:
            return data, "image/jpeg"
    return None


def _on_white(image: Image) -> Image:
    from PIL import Image as Pillow

    if image.mode != "RGBA":
        return image
    white = Pillow.new("RGBA", image.size, "white")
    return Pillow.alpha_composite(white, image).convert("RGB")


def _saved(image: Image, form: str, quality: int = 90) -> bytes:
    written = BytesIO()
    image.save(written, form, optimize=True, **({"quality": quality} if form == "JPEG" else {}))
    return written.getvalue()


def _refusal(path: str, why: str) -> HearthNetError:
    return HearthNetError("bad_request", f"{path}: {why}", details={"path": path})
