"""Events of the log as they travel in a page: compressed, since texts and signed frames repeat each other.

A page of 500 posts takes 0.5 MB instead of 1.2 (docs/decisions/0234).

See: docs/protocol/log.md#exchange.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from hearthnet.core import ids
from hearthnet.core.canonical_json import read_json
from hearthnet.core.errors import HearthNetError
from hearthnet.trust import signed_document
from hearthnet.trust.eventlog.entries import LogEvent

MAX_BYTES: Final = 8 * 1024 * 1024
"""Maximum size of a page: more than 500 entries and 2 MiB of bodies."""
_LEVEL: Final = 3
"""Half the time of the usual level, and 7 % more bytes."""
_ARRAY: Final = msgspec.json.Decoder(list[Any])
_EVENTS: Final = msgspec.json.Decoder(list[LogEvent])


def pack(events: Sequence[LogEvent]) -> str:
    """Return the compressed text of `events`."""
    return ids.b64(zlib.compress(msgspec.json.encode(events), _LEVEL))


def unpack(text: str) -> list[LogEvent]:
    """Return the events in a compressed text from another node, unchecked but for their shape.

    Values of another shape are skipped.

    Raises:
        HearthNetError: `bad_request` if it is malformed, or larger than `MAX_BYTES`.
    """
    reader = zlib.decompressobj()
    try:
        data = reader.decompress(ids.unb64(text), MAX_BYTES)
    except zlib.error as error:
        raise HearthNetError("bad_request", f"the page is damaged: {error}") from error
    if not reader.eof:
        raise HearthNetError("bad_request", f"the page is cut off, or has more than {MAX_BYTES} bytes")
    with contextlib.suppress(HearthNetError):
        return read_json(data, _EVENTS)
    values = read_json(data, _ARRAY)
    return signed_document.readable(values, LogEvent)
