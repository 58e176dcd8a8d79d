"""Events of the log as they travel in a page: compressed, since texts and signed frames repeat each other.

A page of 500 posts takes 0.5 MB instead of 1.2 (docs/decisions/0234).

See: docs/protocol/log.md#exchange.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from hearthnet.core import ids
from hearthnet.core.canonical_json import read_json
from hearthnet.core.errors import HearthNetError
from hearthnet.trust import signed_document
from hearthnet.trust.eventlog.entries import LogEntry, LogEvent

MAX_BYTES: Final = 8 * 1024 * 1024
"""Maximum size of a page: more than 500 entries and 2 MiB of bodies."""
_LEVEL: Final = 3
"""Half the time of the usual level, and 7 % more bytes."""
_ARRAY: Final = msgspec.json.Decoder(list[Any])
_FRAME: Final = re.compile('"frame":"([A-Za-z0-9_-]{64,})"')
_Row = tuple[LogEntry, str, str, str]
_EVENTS: Final = msgspec.json.Decoder(list[LogEvent])


def pack(events: Sequence[LogEvent]) -> str:
    """Return the compressed text of `events`."""
    return ids.b64(zlib.compress(msgspec.json.encode(events), _LEVEL))


def pack_compact(events: Sequence[LogEvent]) -> str:
    """Return the compressed text of `events`, with the signed frame in each body as bytes.

    A frame repeats the words of its event, which as base64url no compression finds.
    """
    rows = [(event.entry, *_parted(event.body)) for event in events]
    return ids.b64(zlib.compress(msgspec.json.encode(rows), _LEVEL))


def unpack(text: str) -> list[LogEvent]:
    """Return the events in a compressed text from another node, unchecked but for their shape.

    Values of another shape are skipped.

    Raises:
        HearthNetError: `bad_request` if it is malformed, or larger than `MAX_BYTES`.
    """
    data = _decompressed(text)
    with contextlib.suppress(HearthNetError):
        return read_json(data, _EVENTS)
    values = read_json(data, _ARRAY)
    return signed_document.readable(values, LogEvent)


def unpack_compact(text: str) -> list[LogEvent]:
    """Return the events in a text of `pack_compact` from another node, as `unpack`.

    Raises:
        HearthNetError: As `unpack`.
    """
    found = []
    for row in read_json(_decompressed(text), _ARRAY):
        with contextlib.suppress(msgspec.ValidationError, UnicodeEncodeError):
            entry, head, frame, tail = msgspec.convert(row, _Row)
            found.append(LogEvent(entry, f"{head}{ids.b64(frame.encode('latin-1'))}{tail}"))
    return found


def events_in(page: Mapping[str, Any]) -> list[LogEvent]:
    """Return the events of a page of another node in whichever form they came, with their hashes.

    Raises:
        HearthNetError: As `unpack`.
    """
    if compact := page.get("compact"):
        events = unpack_compact(compact)
    elif packed := page.get("packed"):
        events = unpack(packed)
    else:
        events = signed_document.readable(page["events"], LogEvent)
    for event in events:
        _ = event.entry.hash  # kept in the entry: this is called in another thread than what needs it
    return events


def _decompressed(text: str) -> bytes:
    reader = zlib.decompressobj()
    try:
        data = reader.decompress(ids.unb64(text), MAX_BYTES)
    except zlib.error as error:
        raise HearthNetError("bad_request", f"the page is damaged: {error}") from error
    if not reader.eof:
        raise HearthNetError("bad_request", f"the page is cut off, or has more than {MAX_BYTES} bytes")
    return data


def _parted(body: str) -> tuple[str, str, str]:
    """Return a body up to its frame, the frame, each byte as the character of that number, and the rest."""
    found = _FRAME.search(body)
    if found is not None:
        with contextlib.suppress(HearthNetError):
            return body[: found.start(1)], ids.unb64(found[1]).decode("latin-1"), body[found.end(1) :]
    return body, "", ""
