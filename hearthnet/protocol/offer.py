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
MAX_OFFERS: Final = 512
"""Maximum of offers that are kept of one node."""


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


class _Parts(msgspec.Struct, frozen=True):
    """A notice whose offers are not read yet."""

    offers: tuple[msgspec.Raw, ...]
    withdrawn: bool = False


_RECORD: Final = msgspec.json.Decoder(OfferRecord)
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Notice)
_PARTS: Final = msgspec.json.Decoder(_Parts)


def encode(notice: Notice) -> bytes:
    """Return the body of an `offer` frame."""
    return _ENCODER.encode(notice)


def decode(body: bytes) -> Notice:
    """Read the notice in `body`, without offers that are malformed or have a lifetime of more than 30 s.

    A later version may offer something that this one cannot read; that keeps none of the other offers out.

    Raises:
        FrameError: `body` is malformed, or none of its offers can be read.
    """
    try:
        notice = read_json(body, _DECODER)
        for offer in notice.offers:
            _check(offer)
    except HearthNetError:
        return _readable(body)
    return notice


def _readable(body: bytes) -> Notice:
    """Read the offers of a notice one by one, as many as are kept of one node at most."""
    found, flaw = list[OfferRecord](), ""
    try:
        parts = read_json(body, _PARTS)
        for part in parts.offers[:MAX_OFFERS]:
            try:
                offer = read_json(bytes(part), _RECORD)
                _check(offer)
            except HearthNetError as error:
                flaw = error.message
            else:
                found.append(offer)
    except HearthNetError as error:
        flaw = error.message
    if not found:
        raise FrameError(f"malformed offer: {flaw}")
    return Notice(tuple(found), parts.withdrawn)


def _check(offer: OfferRecord) -> None:
    parse_capability(offer.capability)
    if not 0 < offer.expires_at - offer.issued_at <= LIFETIME_MS:
        raise HearthNetError("bad_request", "an offer lives up to 30 s from its issue")
