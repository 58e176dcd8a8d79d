"""Whatever bytes come, readers answer with their two errors or with what is well-formed.

The mutations are drawn from a fixed seed: the same frames in every run, many of them, and fast.

See: docs/protocol/frames.md#opening.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol import frame, header, offer, subjects
from hearthnet.protocol.frame import FrameError
from hearthnet.trust.authorization import approval, token
from hearthnet.trust.community import roster
from hearthnet.trust.keys import Identity
from tests.protocol import fuzz
from tests.protocol.mutants import ANNA, BERTA, KEY, OPEN, WAYS, mutations, resigned

Data = TypeVar("Data", bytes, str)
HEADER, BODY = OPEN
NOTICE = offer.encode(
    offer.Notice(
        (
            offer.OfferRecord(
                capability="rag.query@1.0",
                instance="a1b2c3d4",
                schema_hash="blake3:00",
                params={"corpus": "system"},
                max_concurrent=4,
                in_flight=0,
                issued_at=1,
                expires_at=30_001,
            ),
        )
    )
)


def outcomes(read: Callable[[Data], Any], frames: Iterator[Data]) -> Counter[str]:
    """What came of each; any other exception goes through and fails the test."""
    seen: Counter[str] = Counter()
    for data in frames:
        try:
            read(data)
            seen["read"] += 1
        except (FrameError, HearthNetError) as error:
            seen["FrameError" if isinstance(error, FrameError) else "HearthNetError"] += 1
    return seen


@pytest.mark.req("WIRE-5", "WIRE-11")
def test_headers_offers_and_documents_break_nobody() -> None:
    assert set(outcomes(header.decode, mutations(header.encode(HEADER), 8_000, 5))) == {
        "read",
        "HearthNetError",
    }
    assert set(outcomes(offer.decode, mutations(NOTICE, 8_000, 6))) == {"read", "FrameError"}
    community = roster.encode(roster.create(ANNA, roster.member(ANNA, "anchor", "Küche", 0), "Ahornweg", 0))
    altered = [
        data
        for data in mutations(community, 1_000, 7)
        if b"".join(data.split()) != b"".join(community.split())
    ]
    assert outcomes(roster.decode, iter(altered))["read"] < len(altered) / 100
    minted = token.mint(
        ANNA,
        subject=BERTA.node_id,
        audience=ANNA.node_id,
        scope=token.Scope(("rag.query@1.0",), {"corpus": ["system"]}),
        now_ms=0,
        ttl_seconds=60,
        run="",
    )
    seen = outcomes(
        lambda data: token.decode(data.decode("utf-8", "surrogateescape")),
        (data for data in mutations(minted.encode(), 2_000, 8) if data != minted.encode()),
    )
    assert set(seen) == {"HearthNetError"}


@pytest.mark.req("WIRE-5")
@given(st.binary(max_size=400))
def test_garbage_is_refused_by_every_reader(data: bytes) -> None:
    readers: list[Callable[[bytes], Any]] = [
        lambda data: frame.unbox(data, KEY),
        lambda data: frame.unbox(frame.BOXED + data, KEY),
        lambda data: frame.read(data, ANNA.node_id),
        lambda data: frame.read(frame.PLAIN + data, ANNA.node_id),
        lambda data: frame.read(frame.SIGNED + data, ANNA.node_id),
        lambda data: frame.read(resigned(data), ANNA.node_id),
        lambda data: frame.read_signed(data, ANNA.node_id),
        header.decode,
        offer.decode,
        roster.decode,
    ]
    for read in readers:
        with pytest.raises((FrameError, HearthNetError)):
            read(data)


@pytest.mark.req("WIRE-5")
@given(
    st.text(max_size=200)
    | st.from_regex(r"\Ahn\.(call|ctl|rep|find|adv|event)(\.[A-Za-z0-9_*>-]{0,43}){0,5}\Z")
)
def test_text_from_outside_breaks_no_reader(text: str) -> None:
    readers: list[Callable[[str], Any]] = [
        subjects.directed,
        subjects.open_sender,
        ids.public_key,
        ids.from_token_form,
        ids.unb64,
        Identity.from_text,
        token.decode,
        lambda text: token.decode(token.SCHEME + text),
        lambda text: frame.read(b"HN1 s " + b"A" * 86 + b"\n", text),
    ]
    for read in readers:
        assert set(outcomes(read, iter([text]))) <= {"read", "HearthNetError", "FrameError"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.req("WIRE-5")
@given(JSON)
def test_any_json_in_the_place_of_a_document_is_read_or_refused(value: object) -> None:
    seen = outcomes(lambda _: approval.decode(value), iter([b""]))
    assert set(seen) == {"HearthNetError"}
    data = msgspec.json.encode(value)
    assert set(outcomes(header.decode, iter([data]))) == {"HearthNetError"}
    assert set(outcomes(offer.decode, iter([data]))) == {"FrameError"}


@pytest.mark.req("WIRE-4", "WIRE-5", "WIRE-13", "WIRE-16")
def test_spoilt_frames_are_refused_as_frames_and_none_is_slow() -> None:
    """The short form of `make fuzz`: behind the box, the signature and the JSON, too."""
    outcome = fuzz.run(15_000, 1)
    assert outcome.slowest_seconds < fuzz.SLOWEST_SECONDS, outcome.slowest
    for way in WAYS:
        assert outcome.count(way) > 1_500
    for way in ("box changed", "signed frame changed", "noise"):
        assert outcome.count(way, "read") == 0
    for way in (
        "plain frame changed",
        "changed, then signed",
        "header rewritten",
        "header rewritten, signed",
    ):
        assert outcome.count(way, "read") > outcome.count(way) / 10, "the mutations should hit both"


@pytest.mark.req("WIRE-16")
def test_a_frame_that_breaks_the_reader_is_told_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(data: bytes) -> frame.Frame:
        raise KeyError("that nobody expected")

    monkeypatch.setattr(fuzz, "opened", broken)
    with pytest.raises(KeyError) as caught:
        fuzz.run(5, 1)
    assert "seed 1, spoilt so: " in caught.value.__notes__[0]
