"""Documents that carry their signature.

See: docs/protocol/identity.md#signed-documents.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.trust import signed_document
from hearthnet.trust.keys import Identity

ANNA, BERTA = Identity(bytes([1]) * 32), Identity(bytes([2]) * 32)


class Note(signed_document.Signed, frozen=True, kw_only=True):
    """A small document."""

    b: str
    a: int = 1
    more: Any = None


@pytest.mark.req("TRUST-1")
@given(st.text(), st.integers(-(2**53) + 1, 2**53 - 1))
def test_a_signed_document_is_proved_after_a_round_trip(text: str, number: int) -> None:
    note = signed_document.sign(Note(b=text, a=number), ANNA, "note")
    again = msgspec.json.decode(msgspec.json.encode(note), type=Note)
    assert again == note
    signed_document.check(again, ANNA.node_id, "note")


@pytest.mark.req("TRUST-1")
def test_what_is_signed_is_the_canonical_json_without_the_signature() -> None:
    note = signed_document.sign(Note(b="x"), ANNA, "note")
    assert note.signing_bytes() == Note(b="x").signing_bytes() == b'{"a":1,"b":"x","more":null}'
    assert json.loads(note.signing_bytes()) == {"a": 1, "b": "x", "more": None}


@pytest.mark.req("TRUST-1")
def test_whoever_changes_or_borrows_it_is_refused() -> None:
    note = signed_document.sign(Note(b="x"), ANNA, "note")
    bare = note.signature.removeprefix(ids.PREFIX)
    replace = msgspec.structs.replace
    for document, signer, purpose in (
        (replace(note, b="y"), ANNA, "note"),
        (replace(note, a=2), ANNA, "note"),
        (replace(note, more=[]), ANNA, "note"),
        (note, BERTA, "note"),
        (note, ANNA, "other"),
        (Note(b="x"), ANNA, "note"),
        (replace(note, signature=bare), ANNA, "note"),
        (replace(note, signature="ed448:00" + bare), ANNA, "note"),
        (replace(note, signature=note.signature + "="), ANNA, "note"),
        (replace(note, signature=note.signature[:-1] + "B"), ANNA, "note"),
        (replace(note, signature=ids.PREFIX + "?"), ANNA, "note"),
    ):
        with pytest.raises(HearthNetError, match=f"the {purpose} is not signed by") as caught:
            signed_document.check(document, signer.node_id, purpose)
        assert caught.value.code == "invalid_signature"


@pytest.mark.req("TRUST-1", "WIRE-3")
@pytest.mark.parametrize("depth", [900, 990, 1_000, 5_000, 100_000])
def test_what_is_nested_too_deeply_is_a_bad_request(depth: int) -> None:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    with pytest.raises(HearthNetError, match="no canonical JSON") as caught:
        Note(b="x", more=value).signing_bytes()
    assert caught.value.code == "bad_request"


@pytest.mark.req("TRUST-1", "WIRE-3")
@pytest.mark.parametrize("value", [float("nan"), 2**53, "\ud800", {"\ud800": 1}, {1: 2}], ids=ascii)
def test_what_has_no_canonical_form_cannot_be_signed(value: Any) -> None:
    with pytest.raises(HearthNetError, match="no canonical JSON"):
        signed_document.sign(Note(b="x", more=value), ANNA, "note")


@pytest.mark.req("ATTACK-27")
def test_what_has_another_shape_is_passed_over_alone() -> None:
    good = [{"b": "x", "signature": ""}, {"b": "y", "a": 2, "signature": "?"}]
    given = [None, good[0], 5, {}, [], {"b": 1}, {"b": "z", "a": "1"}, good[1]]
    assert signed_document.readable(given, Note) == [Note(b="x"), Note(b="y", a=2, signature="?")]
