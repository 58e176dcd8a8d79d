"""Media by value: `data:` URLs, parsed and made without loss."""

from __future__ import annotations

import re
from typing import Final

from hearthnet_llm.interface.content_parts import AudioPart, DocumentPart, ImagePart, VideoPart
from hearthnet_llm.vendors.wire import Json

_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.*)", re.DOTALL)


def of_url(url: str) -> Json:
    """Return the canonical fields of the content or target of a URL."""
    found = _DATA_URL.fullmatch(url)
    return {"url": url} if found is None else {"media_type": found[1], "data": found[2]}


def to_url(part: ImagePart | AudioPart | VideoPart | DocumentPart) -> str | None:
    """Return the URL of a part's bytes, or its own URL, or None."""
    if part.data is not None and part.media_type is not None:
        return f"data:{part.media_type};base64,{part.data}"
    return part.url
