"""Preparation of a request's media: images are fitted to limits, others get a media type.

The attempts for an image, in order: unchanged; scaled to the longest side; as PNG if it has transparency and
is small enough, else as JPEG on white with decreasing quality; then ever smaller. Other media are known by
their first bytes.

See: docs/vendors.md#images.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import struct
from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import TYPE_CHECKING, Final

import msgspec

from hearthnet import HearthNetError
from hearthnet_llm.interface.content_parts import AudioPart, DocumentPart, ImagePart, Part, VideoPart
from hearthnet_llm.interface.request import ChatRequest, Message
from hearthnet_llm.interface.validation import refusal

if TYPE_CHECKING:
    from PIL.Image import Image
import re

Fetch = Callable[[str], Awaitable[bytes]]
"""Returns the blob of a content hash, or raises `not_found`."""
_MIB: Final = 1 << 20
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
_BEGINNINGS: Final = (
    (re.compile(rb"%PDF-"), "application/pdf"),
    (re.compile(rb"RIFF....WAVE", re.DOTALL), "audio/wav"),
    (re.compile(rb"ID3|\xff[\xe3\xf2\xf3\xfa\xfb]"), "audio/mp3"),
    (re.compile(rb"fLaC"), "audio/flac"),
    (re.compile(rb"OggS"), "audio/ogg"),
    (re.compile(rb"....ftypM4A", re.DOTALL), "audio/mp4"),
    (re.compile(rb"....ftypqt", re.DOTALL), "video/quicktime"),
    (re.compile(rb"....ftyp3g", re.DOTALL), "video/3gpp"),
    (re.compile(rb"....ftyp", re.DOTALL), "video/mp4"),
    (re.compile(rb"\x1a\x45\xdf\xa3"), "video/webm"),
)
_LOOKED_AT: Final = 64
"""Characters of base64, a multiple of 4."""


async def unknown(cid: str) -> bytes:
    """Raise: there is no store to fetch from.

    Raises:
        HearthNetError: `not_found`, always.
    """
    raise HearthNetError("not_found", f"there is no store here to fetch {cid} from")


async def prepared(request: ChatRequest, limits: ImageLimits, fetch: Fetch) -> ChatRequest:
    """Return the request with images as bytes within `limits` and media types for all else.

    Raises:
        HearthNetError: `bad_request` for a medium of unknown type, too many images, an unreadable image, or
            an image URL that the vendor does not fetch, because this service fetches nothing from the
            internet for a caller.
    """
    count = sum(len(message.images) for message in request.messages)
    if count > limits.most_images:
        raise refusal(
            "/input/messages", f"{count} images; this model takes at most {limits.most_images} in one request"
        )
    share = min(limits.most_bytes, limits.all_bytes // max(count, 1))
    within = msgspec.structs.replace(limits, most_bytes=share)
    messages = [await _message(place, one, within, fetch) for place, one in enumerate(request.messages)]
    return msgspec.structs.replace(request, messages=messages)


async def _message(place: int, message: Message, limits: ImageLimits, fetch: Fetch) -> Message:
    if not isinstance(message.content, list):
        return message
    path = f"/input/messages/{place}/content"
    parts = [
        await _part(part, limits, fetch, f"{path}/{number}") for number, part in enumerate(message.content)
    ]
    return msgspec.structs.replace(message, content=parts)


async def _part(part: Part, limits: ImageLimits, fetch: Fetch, path: str) -> Part:
    """Return the part as the vendors require it: an image within `limits`, other media with their type."""
    if isinstance(part, ImagePart):
        return await _image(part, limits, fetch, path)
    if not isinstance(part, AudioPart | VideoPart | DocumentPart):
        return part
    if part.data is None or part.media_type is not None:
        return part
    family = str(part.__struct_config__.tag)
    kind = media_type_of(part.data, family)
    if kind is None:
        raise refusal(f"{path}/media_type", f"say what the {family} is, such as application/pdf or audio/mp3")
    return msgspec.structs.replace(part, media_type=kind)


async def _image(part: ImagePart, limits: ImageLimits, fetch: Fetch, path: str) -> ImagePart:
    if part.file_id is not None or (part.url is not None and limits.urls):
        return part
    if part.url is not None:
        raise refusal(path, "this model's server fetches no images; store it and give image_cid")
    data = await fetch(part.image_cid) if part.image_cid is not None else _decoded(part.data or "", path)
    small, kind = await asyncio.to_thread(fit_image, data, limits, path)
    encoded = base64.b64encode(small).decode()
    return msgspec.structs.replace(part, image_cid=None, data=encoded, media_type=kind)


def _decoded(text: str, path: str) -> bytes:
    if len(text) > MOST_BYTES * 4 // 3 + 4:
        raise refusal(path, f"the image is larger than {MOST_BYTES >> 20} MiB")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise refusal(path, "data must be base64") from error


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
        raise refusal(path, "the image is damaged; send it again") from error
    return _made(pixels, limits, path)


def _opened(data: bytes, path: str) -> Image:
    from PIL import Image as Pillow

    if len(data) > MOST_BYTES:
        raise refusal(path, f"the image has {len(data) >> 20} MiB; at most {MOST_BYTES >> 20} are read")
    try:
        image = Pillow.open(BytesIO(data), formats=_READ)
    except (*_UNREADABLE, Pillow.DecompressionBombError, Pillow.DecompressionBombWarning) as error:
        raise refusal(path, "this is no image that can be read; send PNG, JPEG, GIF or WebP") from error
    if image.width * image.height > MOST_PIXELS:
        size = f"{image.width} x {image.height}"
        raise refusal(
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


def media_type_of(data: str, family: str) -> str | None:
    """Return the media type of base64 `data`, or None if it is unknown or of another family.

    `family` is audio, video or document.
    """
    try:
        head = base64.b64decode(data[:_LOOKED_AT])
    except (binascii.Error, ValueError):
        return None
    found = next((kind for beginning, kind in _BEGINNINGS if beginning.match(head)), None)
    return found if found is None or (found.partition("/")[0] in (family, "application")) else None
