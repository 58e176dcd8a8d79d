"""Detection of a medium's type by its first bytes, for parts without a media type."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

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


def sniffed(data: str, family: str) -> str | None:
    """Return the media type of base64 `data`, or None if it is unknown or of another family.

    `family` is audio, video or document.
    """
    try:
        head = base64.b64decode(data[:_LOOKED_AT])
    except (binascii.Error, ValueError):
        return None
    found = next((kind for beginning, kind in _BEGINNINGS if beginning.match(head)), None)
    return found if found is None or (found.partition("/")[0] in (family, "application")) else None
