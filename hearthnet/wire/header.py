"""The header of a frame (wire.md, "Frame")."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from hearthnet import ids
from hearthnet.errors import HearthNetError

Kind = Literal["call", "open", "reply", "frame", "ack", "input", "cancel", "find", "offer"]

SUBJECT_KINDS: Final[dict[str, frozenset[str]]] = {
    "call": frozenset({"call", "open"}),
    "ctl": frozenset({"ack", "input", "cancel"}),
    "rep": frozenset({"reply", "frame", "offer"}),
    "find": frozenset({"find"}),
    "adv": frozenset({"offer"}),
}
"""Which kinds are legal on which family of subjects; anything else is dropped."""


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of JSON before the body.

    `time` and `deadline` are milliseconds: since the epoch, and left to answer. `from_instance` is the
    caller's
    process, so that a reply reaches that process alone (docs/decisions/0004). `seq` counts a stream's
    frames from 1; 0 is
    outside the sequence (keep-alive). `code` is set on a reply or frame that carries an error object.
    """

    kind: Kind
    id: str
    sender: str = msgspec.field(name="from")
    community: str
    time: int
    from_instance: str = ""
    to: str = ""
    to_instance: str = ""
    capability: str = ""
    deadline: int = 0
    seq: int = 0
    event: str = ""
    code: str = ""
    token: str = ""
    run: str = ""
    approval: dict[str, Any] | None = None
    idempotency_key: str = ""
    hops: int = 0


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Header)


def encode(header: Header) -> bytes:
    """The header's one line, without its end."""
    return _ENCODER.encode(header)


def decode(line: bytes | memoryview) -> Header:
    """The header in `line`; `bad_request` for anything that is none."""
    try:
        header = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HearthNetError("bad_request", f"malformed header: {error}") from error
    if not ids.is_ulid(header.id):
        raise HearthNetError("bad_request", "malformed header: id is no ULID")
    return header
