"""Preparation of a request's media: images are fitted, others get a media type.

See: docs/vendors.md#images.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable

import msgspec

from hearthnet import HearthNetError
from hearthnet_llm.interface.content_parts import AudioPart, DocumentPart, ImagePart, Part, VideoPart
from hearthnet_llm.interface.request import ChatRequest, Message
from hearthnet_llm.media.image import MOST_BYTES, fit_image
from hearthnet_llm.media.limits import ImageLimits
from hearthnet_llm.media.sniffed import sniffed

Fetch = Callable[[str], Awaitable[bytes]]
"""Returns the blob of a content hash, or raises `not_found`."""


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
    named = [_named(place, one) for place, one in enumerate(request.messages)]
    if named != request.messages:
        request = msgspec.structs.replace(request, messages=named)
    count = sum(isinstance(part, ImagePart) for message in request.messages for part in _parts(message))
    if not count:
        return request
    if count > limits.most_images:
        raise _refusal(
            "/input/messages", f"{count} images; this model takes at most {limits.most_images} in one request"
        )
    share = min(limits.most_bytes, limits.all_bytes // count)
    within = msgspec.structs.replace(limits, most_bytes=share)
    messages = [await _message(place, one, within, fetch) for place, one in enumerate(request.messages)]
    return msgspec.structs.replace(request, messages=messages)


def _named(place: int, message: Message) -> Message:
    """Return the message with a media type for each recording, video and document.

    Vendors require it.
    """
    parts = [
        _sniffed(part, f"/input/messages/{place}/content/{number}")
        for number, part in enumerate(_parts(message))
    ]
    return message if parts == _parts(message) else msgspec.structs.replace(message, content=parts)


def _sniffed(part: Part, path: str) -> Part:
    if not isinstance(part, AudioPart | VideoPart | DocumentPart):
        return part
    if part.data is None or part.media_type is not None:
        return part
    family = str(part.__struct_config__.tag)
    kind = sniffed(part.data, family)
    if kind is None:
        raise _refusal(
            f"{path}/media_type", f"say what the {family} is, such as application/pdf or audio/mp3"
        )
    return msgspec.structs.replace(part, media_type=kind)


async def _message(place: int, message: Message, limits: ImageLimits, fetch: Fetch) -> Message:
    if not message.has_images:
        return message
    parts: list[Part] = []
    for number, part in enumerate(_parts(message)):
        if isinstance(part, ImagePart):
            path = f"/input/messages/{place}/content/{number}"
            parts.append(await _image(part, limits, fetch, path))
        else:
            parts.append(part)
    return msgspec.structs.replace(message, content=parts)


async def _image(part: ImagePart, limits: ImageLimits, fetch: Fetch, path: str) -> ImagePart:
    if part.file_id is not None or (part.url is not None and limits.urls):
        return part
    if part.url is not None:
        raise _refusal(path, "this model's server fetches no images; store it and give image_cid")
    data = await fetch(part.image_cid) if part.image_cid is not None else _decoded(part.data or "", path)
    small, kind = await asyncio.to_thread(fit_image, data, limits, path)
    encoded = base64.b64encode(small).decode()
    return msgspec.structs.replace(part, image_cid=None, data=encoded, media_type=kind)


def _decoded(text: str, path: str) -> bytes:
    if len(text) > MOST_BYTES * 4 // 3 + 4:
        raise _refusal(path, f"the image is larger than {MOST_BYTES >> 20} MiB")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _refusal(path, "data must be base64") from error


def _parts(message: Message) -> list[Part]:
    return message.content if isinstance(message.content, list) else []


def _refusal(path: str, why: str) -> HearthNetError:
    return HearthNetError("bad_request", f"{path}: {why}", details={"path": path})
