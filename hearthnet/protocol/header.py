"""The header of a frame.

See: docs/protocol/frames.md#header.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from hearthnet.core import ids
from hearthnet.core.canonical_json import read_json
from hearthnet.core.capability_name import Count
from hearthnet.core.errors import HearthNetError

Instance = Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9]{8}\Z")]
Kind = Literal[
    "call", "open", "reply", "frame", "ack", "input", "cancel", "find", "offer", "event", "calls", "replies"
]

SUBJECT_KINDS: Final[dict[str, frozenset[str]]] = {
    "call": frozenset({"call", "open", "calls"}),
    "ctl": frozenset({"ack", "input", "cancel"}),
    "rep": frozenset({"reply", "frame", "offer", "replies"}),
    "find": frozenset({"find"}),
    "adv": frozenset({"offer"}),
    "event": frozenset({"event"}),
}
"""Kinds that are legal on each family of subjects; anything else is dropped."""


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One line of JSON before the body.

    `time` is in milliseconds since the epoch, `deadline` the milliseconds left to answer. `from_instance` is
    the caller's process, so that a reply reaches that process alone (docs/decisions/0004). `seq` counts a
    stream's frames from 1; 0 is outside the sequence (keep-alive). `stream` is the call to which an ack, an
    input or a cancel belongs. `event` is a stream frame's event, or the type of a published event, as in its
    subject. `code` is set on a reply or frame that carries an error object. `traceparent` is unchecked
    (protocol/traceparent.py). `session` names calls that belong together (bus/routing/routing_table.py).
    `packs` permits the frames of the stream that this frame opens to arrive in batches (protocol/batch.py).
    `waits` asks the provider to keep the call until a place is free (service/sharing/places.py).
    """

    kind: Kind
    id: str
    sender: str = msgspec.field(name="from")
    community: str
    time: Count
    from_instance: Instance
    to: str = ""
    to_instance: str = ""
    capability: str = ""
    deadline: Count = 0
    stream: str = ""
    seq: Count = 0
    event: str = ""
    code: str = ""
    token: str = ""
    run: str = ""
    approval: dict[str, Any] | None = None
    grant: dict[str, Any] | None = None
    use: Count = 0
    idempotency_key: str = ""
    hops: Count = 0
    traceparent: str = ""
    session: str = ""
    packs: bool = False
    waits: bool = False


LONGEST: Final = 65_536
"""Maximum length in bytes. Reading a signed header of a megabyte would take a tenth of a second."""
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Header)


def encode(header: Header) -> bytes:
    """Return the header's one line, without its line end.

    Raises:
        HearthNetError: `payload_too_large` if it is longer than `LONGEST`.
    """
    line = _ENCODER.encode(header)
    if len(line) > LONGEST:
        raise HearthNetError(
            "payload_too_large",
            f"the header has {len(line)} bytes, and may have {LONGEST}: send a smaller token or grant",
            details={"limit": LONGEST},
        )
    return line


def decode(line: bytes | memoryview) -> Header:
    """Read the header in `line`.

    Raises:
        HearthNetError: `bad_request` if it is too long or malformed.
    """
    if len(line) > LONGEST:
        raise HearthNetError("bad_request", f"malformed header: longer than {LONGEST} bytes")
    header = read_json(line, _DECODER)
    if not ids.is_ulid(header.id):
        raise HearthNetError("bad_request", "malformed header: id is no ULID")
    return header
