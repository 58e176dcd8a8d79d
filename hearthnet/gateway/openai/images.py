"""Images that are too large for a bus message: stored in the node's store, named by hash.

They are kept there for a day, as runs are, for the client that sent them: a model reads them with the rights
of that client. Only models of this node can read them, and no others are called.
"""

from __future__ import annotations

import asyncio
import base64
from typing import Final

import msgspec
from starlette.requests import Request

from hearthnet.bus.blobs.metadata import Hold
from hearthnet.bus.store import HomeStore
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.gateway.http.rate_limits import MOST_BODY_BYTES
from hearthnet.gateway.openai.messages import invalid_part, parts_of
from hearthnet.gateway.openai.request import OpenAIRequest

HOLD_MS: Final = 24 * 3600 * 1000
_SMALL: Final = 65_536
"""The most characters of an image that stays in the request."""


def is_large(request: Request) -> bool:
    """Return whether the declared length of the body is above the limit for other requests."""
    said = request.headers.get("content-length", "0")
    return said.isdigit() and int(said) > MOST_BODY_BYTES


async def with_images_stored(completion: OpenAIRequest, home: Home, principal: str) -> OpenAIRequest:
    """Return `completion` of `principal` with `image_cid` in place of the data of each larger image.

    Errors of the store are passed through.

    Raises:
        HearthNetError: `bad_request` for data that is not base64.
    """
    found = [
        (part, f"/messages/{place}/content/{number}")
        for place, message in enumerate(completion.body["input"]["messages"])
        for number, part in enumerate(parts_of(message))
        if part["type"] == "image" and len(part.get("data", "")) > _SMALL
    ]
    if not found:
        return completion
    hold = Hold(principal, "image of a question", until=now_ms() + HOLD_MS)
    async with await HomeStore.connect(home, "gateway images") as store:
        for part, path in found:
            data = await asyncio.to_thread(_decoded, part.pop("data"), path)
            part["image_cid"] = await store.blobs.put_bytes(data, hold)
    return msgspec.structs.replace(completion, stored=True)


def _decoded(text: str, path: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise invalid_part("the image's data is no base64", path) from error
