"""Offers as they travel.

See: docs/protocol/discovery.md#offers.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hearthnet.protocol.frame import FrameError
from hearthnet.protocol.offer import (
    FIND_JITTER_MS,
    LIFETIME_MS,
    MAX_OFFERS,
    REPUBLISH_MS,
    Notice,
    OfferRecord,
    decode,
    encode,
)

OFFER: dict[str, Any] = {
    "capability": "rag.query@1.0",
    "instance": "a1b2c3d4",
    "schema_hash": "blake3:00",
    "params": {"corpus": "system"},
    "max_concurrent": 4,
    "in_flight": 0,
    "issued_at": 1_000,
    "expires_at": 1_000 + LIFETIME_MS,
}


def body(**changes: Any) -> bytes:
    """A notice of one offer, changed; None takes a member away."""
    offer = {name: value for name, value in {**OFFER, **changes}.items() if value is not None}
    return msgspec.json.encode({"offers": [offer]})


@pytest.mark.req("WIRE-11")
def test_a_notice_is_read_as_it_was_written() -> None:
    full = OfferRecord(**OFFER, trust="self", service="rag", version="1.2")
    for notice in (Notice(()), Notice((full,)), Notice((full, OfferRecord(**OFFER)), withdrawn=True)):
        assert decode(encode(notice)) == notice


@pytest.mark.req("WIRE-11")
def test_times_of_offers_are_those_of_the_protocol() -> None:
    """docs/protocol: good for 30 s, announced every 20 s, a find answered within 50 ms."""
    assert (LIFETIME_MS, REPUBLISH_MS, FIND_JITTER_MS) == (30_000, 20_000, 50)


@pytest.mark.req("WIRE-11")
@pytest.mark.parametrize(
    "changes",
    [
        {"capability": None},
        {"capability": "rag.query"},
        {"capability": "rag.>@1.0"},
        {"instance": None},
        {"instance": "*"},
        {"instance": "a1b2c3d4 \r\nPUB x"},
        {"instance": "a1b2c3d4\n"},
        {"params": []},
        {"max_concurrent": -1},
        {"max_concurrent": "4"},
        {"in_flight": -1},
        {"issued_at": -1},
        {"expires_at": 2**60},
        {"expires_at": 1_000},
        {"expires_at": 999},
        {"expires_at": 1_001 + LIFETIME_MS},
    ],
    ids=str,
)
def test_an_offer_that_could_lead_astray_or_never_end_is_refused(changes: dict[str, Any]) -> None:
    assert decode(body())
    with pytest.raises(FrameError, match="offer"):
        decode(body(**changes))


@pytest.mark.req("WIRE-11", "WIRE-13")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"offers":1}',
        b'{"offers":[{}]}',
        b"\xff",
        b'{"offers":[{"params":' + b'{"a":' * 100_000,
    ],
    ids=range(7),
)
def test_what_is_no_notice_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError, match="malformed offer"):
        decode(data)


@pytest.mark.req("WIRE-11", "VERSION-3")
def test_an_offer_of_a_later_version_keeps_no_other_out() -> None:
    later = {**OFFER, "capability": "rag.query@1.0#fast", "priority": 1}
    data = msgspec.json.encode({"offers": [later, {**OFFER, "priority": 1}, {**OFFER, "expires_at": 1}]})
    assert decode(data) == Notice((OfferRecord(**OFFER),))


@pytest.mark.req("WIRE-11")
def test_of_a_notice_with_a_malformed_offer_as_many_are_read_as_are_kept() -> None:
    data = msgspec.json.encode({"offers": [*([OFFER] * (MAX_OFFERS + 9)), {}]})
    assert len(decode(data).offers) == MAX_OFFERS
