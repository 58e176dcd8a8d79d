"""One image made to fit: unchanged where it can be, else upright, smaller, in another form.

The order of what is tried: as it is; scaled to the longest side; as PNG where it has transparency and is
small enough, else as JPEG on white, in falling quality; then smaller and smaller.
"""

from __future__ import annotations

import struct
from io import BytesIO
from typing import TYPE_CHECKING, Final

from hearthnet.errors import HearthNetError
from hearthnet_llm.media.limits import Limits

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_BYTES: Final = 32 << 20
MOST_PIXELS: Final = 50_000_000
"""Of an image that is read at all; what is larger would fill the memory once it is unpacked."""

_QUALITIES: Final = (90, 80, 65, 50)
_SMALLER: Final = 0.7
_SMALLEST_SIDE: Final = 64
_READ: Final = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")
_UNREADABLE: Final = (OSError, ValueError, SyntaxError, EOFError, struct.error)
"""What the library raises for files that are no images, or damaged ones."""
_UPRIGHT: Final = 0x0112
"""The EXIF tag that says how the camera was held."""


def fitted(data: bytes, limits: Limits, path: str) -> tuple[bytes, str]:
    """Bytes and media type of the image within `limits`; `path` names the part in a `bad_request` for what
    is no image, or one too large to be read.
    """
    image = _opened(data, path)
    kind = f"image/{str(image.format).lower()}"
    small = len(data) <= limits.most_bytes and max(image.size) <= limits.longest_side
    try:
        if kind in limits.types and small and image.getexif().get(_UPRIGHT, 1) == 1:
            return data, kind
        image.draft("RGB", (limits.longest_side, limits.longest_side))  # a large JPEG is never unpacked whole
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
    """The pixels, upright, of the first picture where there are several; transparent or not."""
    from PIL import ImageOps

    turned = ImageOps.exif_transpose(image)
    clear = "A" in turned.getbands() or "transparency" in turned.info
    return turned.convert("RGBA" if clear else "RGB")


def _made(image: Image, limits: Limits, path: str) -> tuple[bytes, str]:
    longest = min(limits.longest_side, max(image.size))
    while longest >= min(_SMALLEST_SIDE, max(image.size)):
        scaled = image.copy()
        scaled.thumbnail((longest, longest))
        if (made := _small_enough(scaled, limits)) is not None:
            return made
        longest = int(longest * _SMALLER)
    raise _refusal(path, f"the image cannot be made as small as {limits.most_bytes} bytes")


def _small_enough(image: Image, limits: Limits) -> tuple[bytes, str] | None:
    """The image in the best form that fits."""
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
