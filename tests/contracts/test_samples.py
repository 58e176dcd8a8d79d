"""Of every capability there is a call that is right, for tests/load and for tests/bad_input."""

from __future__ import annotations

import pytest

from hearthnet.contracts.registry import contracts
from hearthnet.core.errors import HearthNetError
from tests.bad_input.mutations import fields, mutations
from tests.helpers.samples import Stock, sample

STOCK = Stock("blake3:" + "0" * 64, "ed25519:" + "A" * 43, "hntoken://v1/a.b.c")
NAMES = [contract.id for contract in contracts()]


@pytest.mark.req("BADINPUT-1", "LOAD-1")
@pytest.mark.parametrize("name", NAMES)
def test_each_capability_has_a_sample_that_its_contract_takes(name: str) -> None:
    contract = contracts().get(name)
    try:
        contract.check_request(sample(contract, STOCK))
    except HearthNetError as error:
        pytest.fail(f"write an example into the contract, or a sample into tests/helpers/samples.py: {error}")


@pytest.mark.req("BADINPUT-1")
def test_every_field_of_a_contract_is_spoilt() -> None:
    contract = contracts().get("market.post@1.0")
    spoilt = [bad.what for bad in mutations(contract, sample(contract, STOCK))]
    named = {str(field) for field in fields(contract)}
    assert {"/input/location/lat", "/input/tags", "/params"} <= named
    assert {what.partition(": ")[0] for what in spoilt if what.startswith("/")} == named
    for kind in ("null", "true", "a number", "a fraction", "a text", "an empty list", "an object"):
        assert {f"{field}: {kind}" for field in named} <= set(spoilt)
    for what in (
        "/input/location/lat: off the globe",
        "/input/tags: 10,000 items",
        "/input/title: 1 MB",
        "/input/title: left out",
        "the body is no bytes",
    ):
        assert what in spoilt
    assert len(spoilt) == len(set(spoilt))
