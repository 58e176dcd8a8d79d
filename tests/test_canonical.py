"""Canonical JSON and hashes (RFC 8785; docs/decisions/0001)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.canonical import canonical_json, content_hash, digest
from hearthnet.errors import HearthNetError

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


@given(VALUES)
def test_reading_and_writing_again_changes_no_byte(value: object) -> None:
    data = canonical_json(value)
    assert canonical_json(json.loads(data)) == data


def test_the_order_of_keys_does_not_matter() -> None:
    assert digest({"b": 1, "a": [2]}) == digest({"a": [2], "b": 1})
    assert digest({"a": [1, 2]}) != digest({"a": [2, 1]})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), SAFE + 1, {"deep": [-SAFE - 1]}, {1: 2}])
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(HearthNetError, match="no canonical JSON") as caught:
        canonical_json(value)
    assert caught.value.code == "bad_request"


def test_a_hash_names_its_algorithm() -> None:
    assert content_hash(b"") == "blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
