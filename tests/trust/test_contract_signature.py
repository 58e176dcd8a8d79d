"""The signature of a package's contract: for exactly this contract, by exactly the key in the name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.contracts import Contract, contracts, is_provider_defined
from hearthnet.contracts.dynamic import checked
from hearthnet.core.errors import HearthNetError
from hearthnet.trust import signed_document
from hearthnet.trust.contract_signature import (
    PURPOSE,
    check_contract,
    check_shared,
    decode,
    key_label,
    plain_name,
    shared_contract,
    sign_contract,
)
from hearthnet.trust.keys import Identity
from tests.helpers.packages import contract

ANNA, BERTA = Identity(b"a" * 32), Identity(b"b" * 32)
GREET = msgspec.convert(contract(), Contract)
SHARED = shared_contract(GREET, ANNA.node_id)
SIGNED = sign_contract(ANNA, GREET)


UNSIGNED = "the contract is not signed by"
ANOTHER = "the signature is for another contract than"
FOREIGN_KEY = "did not sign its contract"
MALFORMED = "the contract's signature is malformed: "


def refused(contract: Contract, value: Any, said: str) -> None:
    """A contract under its name between homes is refused with this signature, for this reason."""
    with pytest.raises(HearthNetError, match=said) as caught:
        check_shared(contract, value)
    assert caught.value.code == "invalid_signature"


@pytest.mark.req("OTHERS-5")
def test_a_shared_contract_is_checked_against_its_key() -> None:
    assert SHARED.name == f"experimental.key.{key_label(ANNA.node_id)}.hello.greet"
    assert plain_name(SHARED.name) == "hello.greet"
    assert is_provider_defined(SHARED.name)
    check_shared(SHARED, SIGNED.as_json())
    # A node of an earlier version, which knows no signatures, takes it as it takes a tool of an MCP server.
    assert checked(msgspec.to_builtins(SHARED), SHARED.id).id == SHARED.id


@pytest.mark.req("OTHERS-5")
def test_two_keys_make_two_names() -> None:
    other = shared_contract(GREET, BERTA.node_id)
    assert other.name != SHARED.name
    refused(other, SIGNED.as_json(), FOREIGN_KEY)
    refused(SHARED, sign_contract(BERTA, GREET).as_json(), FOREIGN_KEY)


@pytest.mark.req("OTHERS-5")
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"capability": "hello.greet@1.1"}, UNSIGNED),
        ({"capability": "hello.other@1.0"}, UNSIGNED),
        ({"capability": "hello.greet"}, MALFORMED + "'hello.greet' needs its version"),
        ({"contract": "blake3:" + "0" * 64}, UNSIGNED),
        ({"key": BERTA.node_id}, FOREIGN_KEY),
        ({"key": "ed25519:nothing"}, MALFORMED + "'ed25519:nothing' is not a node id"),
        ({"v": 2}, UNSIGNED),
        ({"more": 1}, MALFORMED + "Object contains unknown field `more`"),
        ({"signature": ""}, UNSIGNED),
        ({"signature": sign_contract(BERTA, GREET).signature}, UNSIGNED),
        ({"signature": ANNA.token}, UNSIGNED),
    ],
    ids=range(11),
)
def test_an_altered_signature_is_refused(changed: dict[str, Any], said: str) -> None:
    refused(SHARED, {**SIGNED.as_json(), **changed}, said)


@pytest.mark.req("OTHERS-5")
def test_a_true_statement_that_another_key_signed_is_refused() -> None:
    forged = signed_document.sign(msgspec.structs.replace(SIGNED, signature=""), BERTA, PURPOSE)
    assert msgspec.structs.replace(forged, signature=SIGNED.signature) == SIGNED
    refused(SHARED, forged.as_json(), UNSIGNED)
    elsewhere = signed_document.sign(msgspec.structs.replace(SIGNED, signature=""), ANNA, "roster")
    refused(SHARED, elsewhere.as_json(), UNSIGNED)


@pytest.mark.req("OTHERS-5")
def test_a_statement_about_another_contract_is_refused() -> None:
    draft = msgspec.structs.replace(SIGNED, v=2)
    newer = signed_document.sign(draft, ANNA, PURPOSE)
    altered = msgspec.structs.replace(GREET, side_effects=True, idempotent="no")
    for value, said in (
        (None, MALFORMED),
        ("text", MALFORMED),
        ({}, MALFORMED),
        (newer.as_json(), f"{ANOTHER} hello.greet@1.0"),
        (sign_contract(ANNA, altered).as_json(), f"{ANOTHER} hello.greet@1.0"),
    ):
        refused(SHARED, value, said)
    with pytest.raises(HearthNetError, match="another contract"):
        check_contract(SIGNED, altered)
    refused(contracts().get("market.list@1.0"), SIGNED.as_json(), "in market.list did not sign")


@pytest.mark.req("OTHERS-5")
def test_names_of_this_project_are_not_signed() -> None:
    with pytest.raises(HearthNetError, match="namespace of HearthNet"):
        sign_contract(ANNA, contracts().get("market.list@1.0"))
    long = msgspec.structs.replace(GREET, name=f"hello.{'a' * 90}")
    with pytest.raises(HearthNetError, match="is not a capability") as caught:
        shared_contract(long, ANNA.node_id)
    assert caught.value.code == "bad_request"


@pytest.mark.req("OTHERS-5")
@given(st.binary(min_size=32, max_size=32))
def test_a_label_is_part_of_a_name(seed: bytes) -> None:
    key = Identity(seed).node_id
    assert plain_name(f"experimental.key.{key_label(key)}.a.b") == "a.b"
    assert decode(sign_contract(Identity(seed), GREET).as_json()).key == key
