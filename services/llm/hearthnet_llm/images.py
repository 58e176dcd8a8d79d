"""The fitting of one image to a server's limits, in a bounded process of its own (media.py).

The attempts, in order: unchanged; scaled to the longest side; as PNG if it has transparency and is small
enough, else as JPEG on white with decreasing quality; then ever smaller. Of an animation only the first
frame is decoded.

See: docs/vendors.md#images.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING, Final

import msgspec

from hearthnet_llm.interface.validation import refusal

if TYPE_CHECKING:
    from PIL.Image import Image

_MIB: Final = 1 << 20
MOST_BYTES: Final = 32 * _MIB
MOST_PIXELS: Final = 12 * _MIB
"""Pixels that are decoded. A camera's 12 megapixels are 12.2 to 12.6 million."""
MOST_JPEG_PIXELS: Final = 50_000_000
"""Pixels of a JPEG, which is decoded at a half, a quarter or an eighth of its sides where that suffices."""
_FEWER: Final = "send one of at most 12 million, or a JPEG of at most 50 million"
_QUALITIES: Final = (90, 80, 65, 50)
_SMALLER: Final = 0.7
_SMALLEST_SIDE: Final = 64
_READ: Final = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")
_JPEG: Final = ("JPEG", "MPO")
"""MPO, of phones, is a JPEG with more of them behind it."""
_MOST_SCANS: Final = 100
"""Scans of a JPEG; programs write about ten. Each takes the time of all pixels, and a few bytes."""
_MARKER: Final = re.compile(rb"\xff([\x02-\xcf\xd8-\xfe])")
_SCAN, _END = b"\xda", b"\xd9"
_UNREADABLE: Final = (OSError, ValueError, SyntaxError, EOFError, struct.error)
"""Exceptions of the library for damaged files and for files that are no images."""
_UPRIGHT: Final = 0x0112
"""The EXIF tag with the orientation of the camera."""


class ImageLimits(msgspec.Struct, frozen=True):
    """Limits of images.

    Of one image: media types, bytes (before base64), pixels of the longer side. Of a request: number of
    images, and bytes of all of them.
    """

    types: tuple[str, ...] = ("image/jpeg", "image/png", "image/gif", "image/webp")
    most_bytes: int = 5 * _MIB
    longest_side: int = 2048
    most_images: int = 20
    all_bytes: int = 20 * _MIB


class FitJob(msgspec.Struct, frozen=True):
    """An image to fit; `path` is its place in the request, for errors."""

    data: bytes
    limits: ImageLimits
    path: str


class FittedImage(msgspec.Struct, frozen=True):
    """An image within its limits."""

    data: bytes
    media_type: str


_decoder: Final = msgspec.msgpack.Decoder(FitJob)


def fit_job(job: bytes, _on_progress: Callable[[str, int, int], None]) -> bytes:
    """Return the image of an encoded `FitJob`, encoded; raises as `fit_image`."""
    wanted = _decoder.decode(job)
    return msgspec.msgpack.encode(FittedImage(*fit_image(wanted.data, wanted.limits, wanted.path)))


def fit_image(data: bytes, limits: ImageLimits, path: str) -> tuple[bytes, str]:
    """Return bytes and media type of the image within `limits`.

    `path` is the path of the part, for errors.

    Raises:
        HearthNetError: `bad_request` if it is no image or is too large to be decoded.
    """
    image = _opened(data, path)
    kind = "image/jpeg" if image.format in _JPEG else f"image/{str(image.format).lower()}"
    small = len(data) <= limits.most_bytes and max(image.size) <= limits.longest_side
    try:
        if kind in limits.types and small and image.getexif().get(_UPRIGHT, 1) == 1:
            return data, kind
        image.draft("RGB", _within(image.size, limits.longest_side))  # decode a large JPEG at reduced size
        _check_pixels(image.size, MOST_PIXELS, path)
        pixels = _loaded(image)
    except _UNREADABLE as error:
        raise refusal(path, "the image is damaged; send it again") from error
    return _made(pixels, limits, path)


def _opened(data: bytes, path: str) -> Image:
    from PIL import Image as Pillow

    if len(data) > MOST_BYTES:
        raise refusal(path, f"the image has {len(data) >> 20} MiB; at most {MOST_BYTES >> 20} are read")
    if (canvas := _webp_canvas(data)) is not None:
        _check_pixels(canvas, MOST_PIXELS, path)  # its decoder reserves the canvas when it is opened
    try:
        image = Pillow.open(BytesIO(data), formats=_READ)
    except (Pillow.DecompressionBombError, Pillow.DecompressionBombWarning) as error:
        raise refusal(path, f"the image has too many pixels; {_FEWER}") from error
    except _UNREADABLE as error:
        raise refusal(path, "this is no image that can be read; send PNG, JPEG, GIF or WebP") from error
    is_jpeg = image.format in _JPEG
    _check_pixels(image.size, MOST_JPEG_PIXELS if is_jpeg else MOST_PIXELS, path)
    if is_jpeg and _has_many_scans(data):
        raise refusal(path, f"the JPEG has more than {_MOST_SCANS} scans; save it again")
    return image


def _within(size: tuple[int, int], longest: int) -> tuple[int, int]:
    """Return the sides of an image that is scaled to a longest side, each at least 1."""
    share = min(1.0, longest / max(size))
    return max(1, round(size[0] * share)), max(1, round(size[1] * share))


def _has_many_scans(data: bytes) -> bool:
    """Return whether the first image of a JPEG has more than `_MOST_SCANS` scans."""
    place, left = 2, _MOST_SCANS  # after the marker of the beginning
    while left >= 0 and (found := _MARKER.search(data, place)) and found[1] != _END:
        left -= found[1] == _SCAN
        place = found.end() + int.from_bytes(data[found.end() : found.end() + 2])
    return left < 0


def _check_pixels(size: tuple[int, int], most: int, path: str) -> None:
    if size[0] * size[1] > most:
        raise refusal(path, f"the image has {size[0]} x {size[1]} pixels; {_FEWER}")


def _webp_canvas(data: bytes) -> tuple[int, int] | None:
    """Return the size that the header of a WebP states, None for other data."""
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return None
    sides = int.from_bytes(data[21:25], "little")
    match data[12:16]:
        case b"VP8L":
            return (sides & 0x3FFF) + 1, (sides >> 14 & 0x3FFF) + 1
        case b"VP8X":
            return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
        case _:
            sides = int.from_bytes(data[26:30], "little")
            return sides & 0x3FFF, sides >> 16 & 0x3FFF


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
    raise refusal(path, f"the image cannot be made as small as {limits.most_bytes} bytes")


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
