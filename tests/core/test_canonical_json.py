"""Canonical JSON and hashes (RFC 8785; docs/decisions/0001)."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import msgspec
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core.canonical_json import (
    canonical_json,
    content_hash,
    derived_id,
    digest,
    read_json,
    refuse_repeated_keys,
)
from hearthnet.core.errors import HearthNetError
from hearthnet.core.ids import is_ulid

SAFE = 2**53 - 1
# A whole float beyond 53 bits is written without a point, as the standard asks, and read back as an integer,
# which has no canonical form: nobody should send one.
FRACTIONS = st.floats(-SAFE, SAFE)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-SAFE, SAFE) | FRACTIONS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_the_example_of_the_specification() -> None:
    value = {"numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 1e-27], "literals": [None, True, False]}
    expected = '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27]}'
    assert canonical_json(value) == expected.encode()


@pytest.mark.req("WIRE-3")
@given(VALUES)
def test_reading_and_writing_again_changes_no_byte(value: object) -> None:
    data = canonical_json(value)
    assert canonical_json(json.loads(data)) == data


def utf16(text: str) -> bytes:
    """By this the standard orders keys (RFC 8785, 3.2.3)."""
    return text.encode("utf-16-be")


def as_the_standard_writes(number: float) -> str:
    """A double as ECMAScript does (RFC 8785, 3.2.2.3), written out from the shortest digits that say it."""
    if number == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(abs(number))).normalize().as_tuple()
    text, point = "".join(map(str, digits)), len(digits) + int(exponent)
    assert sign == 0
    if 0 < point <= 21:
        written = text.ljust(point, "0")[:point] + ("." + text[point:] if len(text) > point else "")
    elif -6 < point <= 0:
        written = "0." + "0" * -point + text
    else:
        rest = "." + text[1:] if len(text) > 1 else ""
        written = f"{text[0]}{rest}e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return ("-" if number < 0 else "") + written


@pytest.mark.req("WIRE-3")
@given(VALUES)
def test_what_is_written_the_fast_way_is_what_the_library_writes(value: Any) -> None:
    assert canonical_json(value) == rfc8785.dumps(value)


@pytest.mark.req("WIRE-3")
@given(st.dictionaries(st.text(alphabet=st.characters(codec="utf-8"), max_size=4), st.integers(-9, 9)))
def test_keys_stand_in_the_order_of_their_utf16(members: dict[str, int]) -> None:
    assert list(json.loads(canonical_json(members))) == sorted(members, key=utf16)


@pytest.mark.req("WIRE-3")
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_are_written_as_ecmascript_does(number: float) -> None:
    text = canonical_json(number).decode()
    assert text == as_the_standard_writes(number)
    assert float(text) == number


@pytest.mark.req("WIRE-3")
def test_every_character_is_itself_or_has_the_one_escape_of_the_standard() -> None:
    short = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
    for code in (*range(0xD800), *range(0xE000, 0x3000 + 0xE000), 0x1F600, 0x10FFFF):
        escape = short.get(code, f"\\u{code:04x}" if code < 0x20 else chr(code))
        assert canonical_json(chr(code)).decode() == f'"{escape}"'
        assert canonical_json({chr(code): 1.5}).decode() == f'{{"{escape}":1.5}}'


@pytest.mark.req("WIRE-3")
def test_text_is_not_normalised_and_whole_numbers_have_one_text() -> None:
    assert canonical_json(["A\u030a", "\u00c5"]).decode() == '["A\u030a","\u00c5"]'
    for value, text in (
        (1.0, "1"),
        (-0.0, "0"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (SAFE, "9007199254740991"),
        (-SAFE, "-9007199254740991"),
        (True, "true"),
        ((1, [2, ()]), "[1,[2,[]]]"),
        ({}, "{}"),
    ):
        assert canonical_json(value).decode() == text


@pytest.mark.req("WIRE-3")
def test_the_order_of_keys_does_not_matter() -> None:
    assert digest({"b": 1, "a": [2]}) == digest({"a": [2], "b": 1})
    assert digest({"a": [1, 2]}) != digest({"a": [2, 1]})


DEEP: list[Any] = []
for _ in range(5000):
    DEEP = [DEEP]


@pytest.mark.req("WIRE-3")
@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        SAFE + 1,
        {"deep": [-SAFE - 1]},
        {1: 2},
        b"bytes",
        "\ud800",
        {"\udc00": 1},
        pytest.param(DEEP, id="deep"),
    ],
)
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(HearthNetError, match="no canonical JSON") as caught:
        canonical_json(value)
    assert caught.value.code == "bad_request"


def test_a_hash_names_its_algorithm() -> None:
    assert content_hash(b"") == "blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"


ANY = msgspec.json.Decoder()
BROKEN = [
    b"",
    b"{",
    b"nul",
    b"NaN",
    b"\xff",
    b'"\\ud800"',
    b"1 2",
    b"1e999",
    b"9" * 5000,
    b"[" * 100_000,
    b'{"a":' * 100_000,
]


@pytest.mark.req("WIRE-13")
@given(VALUES)
def test_json_from_outside_is_read(value: object) -> None:
    data = json.dumps(value).encode()
    assert canonical_json(read_json(data, ANY)) == canonical_json(value)
    refuse_repeated_keys(data)


@pytest.mark.req("WIRE-13")
@pytest.mark.parametrize("data", BROKEN, ids=range(len(BROKEN)))
def test_broken_json_from_outside_is_a_bad_request_however_it_is_broken(data: bytes) -> None:
    with pytest.raises(HearthNetError, match="unreadable JSON") as caught:
        read_json(data, ANY)
    assert caught.value.code == "bad_request"


@pytest.mark.req("WIRE-13")
@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"a":1}',
        b'{"a":1,"b":2,"a":3}',
        b'[{"x":{"a":[{"a":1},{"b":1,"b":2}]}}]',
        b'{"a":1,"\\u0061":2}',
        '{"é":1,"é":2}'.encode(),
        b"\xff",
        b"{",
        b"[" * 100_000,
    ],
    ids=range(8),
)
def test_a_key_that_stands_twice_is_refused_and_so_is_what_cannot_be_looked_through(data: bytes) -> None:
    with pytest.raises(HearthNetError, match="ambiguous JSON") as caught:
        refuse_repeated_keys(data)
    assert caught.value.code == "bad_request"


@pytest.mark.req("WIRE-13")
def test_the_same_key_in_two_objects_is_no_repetition() -> None:
    refuse_repeated_keys(b'{"a":{"a":[{"a":1},{"a":1}]},"b":{"a":1},"A":1}')
    refuse_repeated_keys('{"\u00e9":1,"e\u0301":2}'.encode())


@pytest.mark.req("WIRE-2")
@given(
    st.lists(st.text(max_size=5), min_size=1, max_size=3),
    st.lists(st.text(max_size=5), min_size=1, max_size=3),
)
def test_a_derived_id_has_the_form_of_a_ulid_and_follows_from_its_parts_alone(
    one: list[str], other: list[str]
) -> None:
    assert is_ulid(derived_id(*one))
    assert (derived_id(*one) == derived_id(*other)) is (one == other)
