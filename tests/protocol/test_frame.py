"""Frames: signed, boxed, opened, refused.

See: docs/protocol/frames.md#layout, docs/protocol/frames.md#opening.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl import bindings

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol import frame, header
from hearthnet.protocol.frame import BoxKeys, Frame, FrameError
from hearthnet.protocol.header import Header
from hearthnet.trust.keys import Identity, signing_input

ANNA, BERTA, CARLA = (Identity(bytes([number]) * 32) for number in (1, 2, 3))
ID = "01HZX3Q4R5S6T7V8W9XA0BC1DE"
KEY = BoxKeys(ANNA).to(BERTA.node_id)


def said(sender: Identity = ANNA) -> Header:
    """The header of a call from `sender` to Berta."""
    return Header(
        kind="call",
        id=ID,
        sender=sender.node_id,
        community=CARLA.node_id,
        time=1,
        from_instance="a1b2c3d4",
        to=BERTA.node_id,
    )


PLAIN = frame.plain(said(), b'{"params":{}}')
SIGNED = frame.signed(said(), b'{"params":{}}', ANNA)
BOXED = frame.box(SIGNED, KEY)


def signed_line(line: bytes) -> bytes:
    """A properly signed frame around any bytes."""
    content = line + b"\n"
    return b"HN1 s " + ids.b64(ANNA.sign(frame.PURPOSE, content)).encode() + b"\n" + content


@pytest.mark.req("WIRE-4")
@given(st.binary())
def test_a_frame_is_read_as_it_was_written(body: bytes) -> None:
    plain = frame.read(frame.plain(said(), body), ANNA.node_id)
    assert plain == Frame(said(), body, None)
    inner = frame.signed(said(), body, ANNA)
    expected = Frame(said(), body, inner)
    assert frame.read(inner, ANNA.node_id) == frame.read_signed(inner, ANNA.node_id) == expected
    assert frame.unbox(frame.box(inner, KEY), BoxKeys(BERTA).of(ANNA.node_id)) == inner


@pytest.mark.req("WIRE-4")
@given(st.integers(0, len(BOXED) - 1), st.integers(1, 255))
def test_any_changed_byte_of_a_boxed_frame_is_refused(place: int, mask: int) -> None:
    changed = bytearray(BOXED)
    changed[place] ^= mask
    with pytest.raises(FrameError):
        frame.unbox(bytes(changed), KEY)


@pytest.mark.req("WIRE-4")
@given(st.integers(0, len(SIGNED) - 1), st.integers(1, 255))
def test_any_changed_byte_of_a_signed_frame_is_refused(place: int, mask: int) -> None:
    changed = bytearray(SIGNED)
    changed[place] ^= mask
    with pytest.raises(FrameError):
        frame.read_signed(bytes(changed), ANNA.node_id)


@pytest.mark.req("WIRE-4")
def test_every_bit_and_every_length_of_both_forms() -> None:
    for data, opened in (
        (BOXED, lambda data: frame.unbox(data, KEY)),
        (SIGNED, lambda data: frame.read_signed(data, ANNA.node_id)),
    ):
        for bit in range(8 * len(data)):
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            with pytest.raises(FrameError):
                opened(bytes(changed))
        for length in range(len(data)):
            with pytest.raises(FrameError):
                opened(data[:length])
        with pytest.raises(FrameError):
            opened(data + b" ")


@pytest.mark.req("WIRE-4")
def test_a_signature_has_one_text() -> None:
    prefix, signature, rest = SIGNED[:6], SIGNED[6:92], SIGNED[92:]
    assert frame.read_signed(prefix + signature + rest, ANNA.node_id)
    for other in (signature + b"==", signature + b"=", signature.replace(b"-", b"+").replace(b"_", b"/")):
        if other != signature:
            with pytest.raises(FrameError):
                frame.read_signed(prefix + other + rest, ANNA.node_id)


@pytest.mark.req("WIRE-6")
def test_what_goes_out_never_comes_back_as_if_from_the_other_side() -> None:
    assert BoxKeys(ANNA).to(BERTA.node_id) == BoxKeys(BERTA).of(ANNA.node_id)
    assert BoxKeys(ANNA).to(BERTA.node_id) != BoxKeys(ANNA).of(BERTA.node_id)
    with pytest.raises(FrameError, match="does not open"):
        frame.unbox(BOXED, BoxKeys(ANNA).of(BERTA.node_id))


@pytest.mark.req("WIRE-6")
def test_a_third_node_opens_nothing() -> None:
    for key in (
        BoxKeys(CARLA).of(ANNA.node_id),
        BoxKeys(CARLA).to(ANNA.node_id),
        BoxKeys(BERTA).of(CARLA.node_id),
    ):
        with pytest.raises(FrameError):
            frame.unbox(BOXED, key)


@pytest.mark.req("WIRE-6")
def test_no_two_boxes_are_alike() -> None:
    assert len({frame.box(PLAIN, KEY) for _ in range(100)}) == 100


@pytest.mark.req("WIRE-6")
def test_derived_keys_are_kept_and_the_keeping_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "_MAX_KEYS", 4)
    derived: list[str] = []
    box_keys = Identity.box_keys

    def counted(self: Identity, peer: str) -> tuple[bytes, bytes]:
        derived.append(peer)
        return box_keys(self, peer)

    monkeypatch.setattr(Identity, "box_keys", counted)
    keys = BoxKeys(ANNA)
    first = keys.to(BERTA.node_id)
    assert keys.to(BERTA.node_id) == first
    assert keys.of(BERTA.node_id) != first, "each direction has its own"
    assert derived == [BERTA.node_id], "both come from one derivation"
    others = [Identity(bytes([number]) * 32).node_id for number in range(10, 14)]
    assert len({keys.of(node) for node in others}) == 4
    assert keys.to(BERTA.node_id) == first
    assert len(derived) == 6


@pytest.mark.req("WIRE-7")
def test_a_frame_that_names_another_sender_than_its_subject_is_refused() -> None:
    with pytest.raises(FrameError, match="another sender"):
        frame.read(frame.plain(said(BERTA), b""), ANNA.node_id)
    with pytest.raises(FrameError, match="another sender"):
        frame.read_signed(frame.signed(said(BERTA), b"", ANNA), ANNA.node_id)


@pytest.mark.req("WIRE-7")
def test_a_signature_of_somebody_else_is_refused() -> None:
    with pytest.raises(FrameError, match="not the sender's"):
        frame.read(frame.signed(said(), b"", BERTA), ANNA.node_id)
    with pytest.raises(FrameError, match="not the sender's"):
        frame.read(SIGNED, BERTA.node_id)


@pytest.mark.req("TRUST-1")
def test_a_signature_for_another_purpose_is_refused() -> None:
    content = header.encode(said()) + b"\n"
    for signature in (ANNA.sign("approval", content), ANNA.sign_raw(content)):
        with pytest.raises(FrameError, match="not the sender's"):
            frame.read_signed(b"HN1 s " + ids.b64(signature).encode() + b"\n" + content, ANNA.node_id)
    assert signing_input("a", b"b") != signing_input("ab", b"")


@pytest.mark.req("WIRE-5")
def test_opening_comes_before_parsing() -> None:
    garbage = b"{" * 1000
    inner = b"HN1 s " + ids.b64(bytes(64)).encode() + b"\n" + garbage
    with pytest.raises(FrameError, match="not the sender's"):
        frame.read(inner, ANNA.node_id)
    with pytest.raises(FrameError, match="does not open"):
        frame.unbox(frame.BOXED + garbage, KEY)


@pytest.mark.req("WIRE-5")
@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        (b"", "neither a plain nor a signed"),
        (b"HN2 p\n{}\n", "neither a plain nor a signed"),
        (BOXED, "neither a plain nor a signed"),
        (PLAIN[:20], "unreadable"),
        (b"HN1 s \n", "not the sender's"),
        (b"HN1 s ?\n{}\n", "malformed signature"),
        (b"HN1 s \xff\n{}\n", "malformed signature"),
        (signed_line(b""), "unreadable"),
        (signed_line(b"[" * 60_000), "unreadable"),
    ],
    ids=range(9),
)
def test_what_is_no_inner_frame_is_refused(inner: bytes, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        frame.read(inner, ANNA.node_id)


@pytest.mark.req("WIRE-5")
def test_what_must_be_boxed_or_signed_is() -> None:
    for data in (PLAIN, SIGNED, b""):
        with pytest.raises(FrameError, match="not a directed frame"):
            frame.unbox(data, KEY)
    for data in (b"HN1 b\n", b"HN1 b\n" + bytes(30), frame.box(PLAIN, KEY)[:-1]):
        with pytest.raises(FrameError, match="does not open"):
            frame.unbox(data, KEY)
    with pytest.raises(FrameError, match="not signed"):
        frame.read_signed(PLAIN, ANNA.node_id)


@pytest.mark.req("WIRE-13")
def test_a_signed_header_has_one_meaning() -> None:
    line = header.encode(said())
    assert frame.read_signed(signed_line(line), ANNA.node_id).header == said()
    for doubled in (
        line.replace(b'"kind":"call"', b'"kind":"find","kind":"call"'),
        line.replace(b'"kind":"call"', b'"k\\u0069nd":"find","kind":"call"'),
        line[:-1] + b',"approval":{"v":1,"v":2}}',
        line[:-1] + b',"later":1,"later":2}',
        line[:-1] + b',"later":"\xff"}',
    ):
        with pytest.raises(FrameError, match="ambiguous"):
            frame.read_signed(signed_line(doubled), ANNA.node_id)


@pytest.mark.req("TRUST-10")
def test_a_peer_whose_id_is_a_weak_point_has_no_box() -> None:
    weak = ids.node_id(bytes(32))
    with pytest.raises(HearthNetError, match="not a usable key") as caught:
        BoxKeys(ANNA).of(weak)
    assert caught.value.code == "invalid_signature"
    with pytest.raises(FrameError, match="not the sender's"):
        frame.read(b"HN1 s " + b"A" * 86 + b"\n{}\n", weak)


def test_the_box_is_the_one_that_others_know() -> None:
    assert bindings.crypto_secretbox_open(BOXED[30:], BOXED[6:30], KEY) == SIGNED


class Marks(set[tuple[str, bytes]]):
    """Marks in memory."""

    def known(self, signer: str, frame: bytes) -> bool:
        """Whether that frame was proved before."""
        return (signer, frame) in self

    def add(self, signer: str, frame: bytes) -> None:  # type: ignore[override]
        """Keep that it was."""
        super().add((signer, frame))


@pytest.mark.req("BUS-64")
def test_a_marked_frame_is_taken_without_its_signature() -> None:
    marks, expected = Marks(), frame.read_signed(SIGNED, ANNA.node_id)
    assert frame.read_signed(SIGNED, ANNA.node_id, marks) == expected
    assert marks == {(ANNA.node_id, SIGNED)}
    unproved = SIGNED.replace(SIGNED[6:92], b"A" * 86)
    for data, sender in ((unproved, ANNA), (SIGNED, BERTA), (PLAIN, ANNA)):
        with pytest.raises(FrameError):
            frame.read_signed(data, sender.node_id, marks)
    marks.add(ANNA.node_id, unproved)
    assert frame.read_signed(unproved, ANNA.node_id, marks) == Frame(said(), expected.body, unproved)
    marks.add(BERTA.node_id, SIGNED)
    with pytest.raises(FrameError, match="another sender"):
        frame.read_signed(SIGNED, BERTA.node_id, marks)


@pytest.mark.req("BUS-64")
def test_what_is_refused_leaves_no_mark() -> None:
    marks = Marks()
    forged = frame.signed(said(), b"{}", CARLA)
    ambiguous = signed_line(header.encode(said()).replace(b'"kind":', b'"kind":"find","kind":', 1))
    for data, message in ((forged, "not the sender's"), (ambiguous, "stands twice")):
        for _ in range(2):
            with pytest.raises(FrameError, match=message):
                frame.read_signed(data, ANNA.node_id, marks)
    assert not marks
