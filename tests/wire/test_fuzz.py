"""Whatever bytes come, readers answer with their two errors or with what is well-formed (wire.md, "Frame").

The mutations are drawn from a fixed seed: the same frames in every run, many of them, and fast.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet import ids
from hearthnet.errors import HearthNetError
from hearthnet.ids import is_ulid
from hearthnet.trust import approval, roster, token
from hearthnet.trust.keys import Identity
from hearthnet.wire import frame, header, offer, subjects
from hearthnet.wire.frame import FrameError

Data = TypeVar("Data", bytes, str)
ANNA, BERTA = Identity(bytes([1]) * 32), Identity(bytes([2]) * 32)
KEY = ANNA.box_key(ANNA.node_id, BERTA.node_id)
HEADER = header.Header(
    kind="open",
    id="01HZX3Q4R5S6T7V8W9XA0BC1DE",
    sender=ANNA.node_id,
    community=BERTA.node_id,
    time=1_795_292_100_000,
    from_instance="a1b2c3d4",
    to=BERTA.node_id,
    to_instance="z9y8x7w6",
    capability="market.post@1.0",
    deadline=30_000,
    seq=3,
    approval={"v": 1, "time": 5, "nested": [{"a": None}, "é🕯"]},
)
BODY = b'{"params":{"a":1},"input":{"title":"Kerzen \xf0\x9f\x95\xaf","tags":["a","b"],"ttl_seconds":3600}}'
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
SPLICES = [
    b"",
    b"\n",
    b'"',
    b"\\ud800",
    b"\xff",
    b"\x00",
    b"[" * 2000,
    b'{"a":' * 2000,
    b"9" * 5000,
    b"1e999",
    b"-1",
    b"null",
    b"HN1 s ",
    b"HN1 p\n",
    b"HN1 b\n",
    b'"kind":"call",',
    b"NaN",
    "🕯".encode(),
]


def mutations(whole: bytes, number: int, seed: int) -> Iterator[bytes]:
    """`number` versions of `whole` with bytes changed, cut out, doubled, or something spliced in."""
    chance = random.Random(seed)
    for _ in range(number):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            start = chance.randrange(len(data) + 1)
            end = min(len(data), start + chance.choice((0, 1, 2, 10)))
            match chance.randrange(4):
                case 0:
                    data[start:end] = bytes(chance.randrange(256) for _ in range(end - start))
                case 1:
                    del data[start:end]
                case 2:
                    data[start:start] = data[start:end]
                case _:
                    data[start:end] = chance.choice(SPLICES)
        yield bytes(data)


def outcomes(read: Callable[[Data], Any], frames: Iterator[Data]) -> Counter[str]:
    """What came of each; any other exception goes through and fails the test."""
    seen: Counter[str] = Counter()
    for data in frames:
        try:
            read(data)
            seen["read"] += 1
        except (FrameError, HearthNetError) as error:
            seen[type(error).__name__] += 1
    return seen


def resigned(content: bytes) -> bytes:
    """A frame that a hostile member really signed, whatever is in it."""
    return b"HN1 s " + ids.b64(ANNA.sign(frame.PURPOSE, content)).encode() + b"\n" + content


@pytest.mark.req("WIRE-4", "WIRE-5")
def test_no_changed_frame_opens_and_none_breaks_the_reader() -> None:
    signed = frame.signed(HEADER, BODY, ANNA)
    boxed = frame.box(signed, KEY)
    altered = (data for data in mutations(boxed, 8_000, 1) if data != boxed)
    assert set(outcomes(lambda data: frame.unbox(data, KEY), altered)) == {"FrameError"}
    altered = (data for data in mutations(signed, 8_000, 2) if data != signed and data[:6] == frame.SIGNED)
    assert set(outcomes(lambda data: frame.read(data, ANNA.node_id), altered)) == {"FrameError"}


@pytest.mark.req("WIRE-5", "WIRE-13")
def test_what_a_member_can_say_under_its_own_key_breaks_nobody() -> None:
    """The box and the signature are right; what is inside is not."""
    content = header.encode(HEADER) + b"\n" + BODY

    def read(data: bytes) -> None:
        opened = frame.read(data, ANNA.node_id)
        again = frame.read(frame.plain(opened.header, opened.body), ANNA.node_id)
        assert again.header == opened.header
        assert opened.header.sender == ANNA.node_id
        assert is_ulid(opened.header.id)
        assert subjects.reply(BERTA.node_id, ANNA.node_id, opened.header.from_instance, opened.header.id)

    plain = outcomes(read, (frame.PLAIN + data for data in mutations(content, 12_000, 3)))
    signed = outcomes(read, (resigned(data) for data in mutations(content, 2_000, 4)))
    for seen in (plain, signed):
        assert set(seen) == {"read", "FrameError"}
        assert min(seen.values()) > sum(seen.values()) / 10, "the mutations should hit both"


@pytest.mark.req("WIRE-5", "WIRE-11")
def test_headers_offers_and_documents_break_nobody() -> None:
    assert set(outcomes(header.decode, mutations(header.encode(HEADER), 8_000, 5))) == {
        "read",
        "HearthNetError",
    }
    assert set(outcomes(offer.decode, mutations(NOTICE, 8_000, 6))) == {"read", "FrameError"}
    community = roster.encode(roster.found(ANNA, roster.member(ANNA, "anchor", "Küche", 0), "Ahornweg", 0))
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
