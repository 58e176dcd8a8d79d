"""Offers: one capability of one process, as announced and as answered to a find.

An offer travels in a signed frame, so its node is the frame's sender and nothing in it needs a second
signature.

See: docs/protocol/discovery.md#offers.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet.core.canonical_json import read_json
from hearthnet.core.capability_name import Count, parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol.frame import FrameError
from hearthnet.protocol.header import Instance

LIFETIME_MS: Final = 30_000
REPUBLISH_MS: Final = 20_000
FIND_JITTER_MS: Final = 50


class OfferRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The offer of one capability by one process.

    `capability` is `name@major.minor`; times are milliseconds since the epoch. `trust` raises the level that
    the contract requires, `self` for offers that never leave their node. `max_concurrent` and `in_flight`
    count calls of this process. `service` and `version` name the program, for people. `packs` permits several
    calls in one frame (protocol/batch.py).
    """

    capability: str
    instance: Instance
    schema_hash: str
    params: dict[str, Any]
    max_concurrent: Count
    in_flight: Count
    issued_at: Count
    expires_at: Count
    trust: str = ""
    service: str = ""
    version: str = ""
    packs: bool = False


def places_of_other(places: int) -> int:
    """Return the places of an offer that calls of one other node may take at once: half, and of one that."""
    return places // 2 or places


class Notice(msgspec.Struct, frozen=True):
    """The body of an `offer` frame; `withdrawn` means that these offers end now."""

    offers: tuple[OfferRecord, ...]
    withdrawn: bool = False


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Notice)


def encode(notice: Notice) -> bytes:
    """Return the body of an `offer` frame."""
    return _ENCODER.encode(notice)


def decode(body: bytes) -> Notice:
    """Read the notice in `body`.

    Raises:
        FrameError: `body` is malformed, or an offer has a lifetime of more than 30 s.
    """
    try:
        notice = read_json(body, _DECODER)
        for offer in notice.offers:
            parse_capability(offer.capability)
    except HearthNetError as error:
        raise FrameError(f"malformed offer: {error}") from error
    if any(not 0 < offer.expires_at - offer.issued_at <= LIFETIME_MS for offer in notice.offers):
        raise FrameError("an offer lives up to 30 s from its issue")
    return notice
