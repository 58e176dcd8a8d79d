"""Offers come, are replaced, expire and go; and why none of them answers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hearthnet.bus.routing import no_route
from hearthnet.bus.routing.offer_registry import OfferView, Registry
from hearthnet.contracts.registry import contracts
from hearthnet.core import ids
from hearthnet.core.capability_name import parse_capability
from hearthnet.protocol.offer import MAX_OFFERS, OfferRecord
from tests.helpers.probe import QUERY, query

NODE, OTHER = ids.node_id(bytes(32)), ids.node_id(bytes([1]) * 32)
TOPIC = "rag.query.v1"
HEARD = 3_000


def _offer(**changes: Any) -> OfferRecord:
    fields: dict[str, Any] = {
        "capability": QUERY,
        "instance": "aaaaaaaa",
        "schema_hash": contracts().get(QUERY).schema_hash,
        "params": {"corpus": "probe"},
        "max_concurrent": 4,
        "in_flight": 0,
        "issued_at": 1_000,
        "expires_at": 31_000,
    }
    return OfferRecord(**{**fields, **changes})


def _view(node: str = NODE, **changes: Any) -> OfferView:
    record = _offer(**changes)
    return OfferView(node, parse_capability(record.capability), record)


@pytest.mark.req("BUS-14")
def test_offers_live_for_their_time_and_the_newest_counts() -> None:
    registry = Registry()
    registry.update(NODE, (_offer(in_flight=1),), withdrawn=False, heard_ms=HEARD)
    registry.update(
        NODE, (_offer(in_flight=2, issued_at=2_000, expires_at=32_000),), withdrawn=False, heard_ms=HEARD
    )
    registry.update(NODE, (_offer(in_flight=9, issued_at=1_500),), withdrawn=False, heard_ms=HEARD)
    assert [view.offer.in_flight for view in registry.offers(TOPIC, HEARD + 29_999)] == [2]
    assert registry.offers(TOPIC, HEARD + 30_000) == []
    assert registry.all_offers(0) == []


@pytest.mark.req("BUS-19")
@pytest.mark.parametrize("issued_at", [0, HEARD - 59_000, HEARD, HEARD + 59_000, 10**12])
@pytest.mark.parametrize("lasts", [1, 10_000, 30_000])
def test_an_offer_counts_for_as_long_as_it_says_from_when_it_was_heard(issued_at: int, lasts: int) -> None:
    """Whatever its node takes for the time: within a minute its frames are taken, so its offers are too."""
    registry = Registry()
    offer = _offer(issued_at=issued_at, expires_at=issued_at + lasts)
    registry.update(NODE, (offer,), withdrawn=False, heard_ms=HEARD)
    assert registry.offers(TOPIC, HEARD + lasts - 1)
    assert registry.offers(TOPIC, HEARD + lasts) == []


@pytest.mark.req("BUS-19")
def test_no_offer_counts_for_longer_than_30_s() -> None:
    registry = Registry()
    registry.update(NODE, (_offer(expires_at=10**12),), withdrawn=False, heard_ms=HEARD)
    assert registry.offers(TOPIC, HEARD + 29_999)
    assert registry.offers(TOPIC, HEARD + 30_000) == []


@pytest.mark.req("BUS-19")
def test_of_one_node_only_so_many_offers_are_kept() -> None:
    registry = Registry()
    flood = tuple(
        _offer(capability=f"market.thing{number % 7}@1.0", params={"corpus": str(number)})
        for number in range(2_000)
    )
    registry.update(OTHER, flood, withdrawn=False, heard_ms=HEARD)
    registry.update(OTHER, flood[::-1], withdrawn=False, heard_ms=HEARD)
    registry.update(
        NODE, (_offer(), _offer(params={"corpus": "x" * 20_000})), withdrawn=False, heard_ms=HEARD
    )
    assert len(registry.all_offers(HEARD)) == MAX_OFFERS + 1
    assert [view.node for view in registry.offers(TOPIC, HEARD)] == [NODE]
    registry.update(OTHER, flood, withdrawn=True, heard_ms=HEARD)
    registry.update(OTHER, (_offer(),), withdrawn=False, heard_ms=HEARD)
    assert len(registry.all_offers(HEARD)) == 2


@pytest.mark.req("BUS-14")
def test_instances_and_params_are_offers_of_their_own() -> None:
    registry = Registry()
    records = (_offer(), _offer(instance="bbbbbbbb"), _offer(params={"corpus": "other"}))
    registry.update(NODE, records, withdrawn=False, heard_ms=HEARD)
    registry.update(OTHER, records[:1], withdrawn=False, heard_ms=HEARD)
    assert len(registry.offers(TOPIC, 0)) == 4
    registry.update(NODE, records[1:2], withdrawn=True, heard_ms=HEARD)
    assert len(registry.offers(TOPIC, 0)) == 3
    registry.drop_instance(NODE, "aaaaaaaa")
    assert [view.node for view in registry.all_offers(0)] == [OTHER]


@pytest.mark.req("BUS-2")
@pytest.mark.parametrize(
    ("views", "code", "words"),
    [
        ([], "not_found", "nobody"),
        ([_view(schema_hash="blake3:" + "0" * 64)], "schema_mismatch", "upgrade"),
        ([_view(params={"corpus": "garden"})], "not_found", "corpus 'garden'"),
    ],
)
def test_why_nobody_answers(views: list[OfferView], code: str, words: str) -> None:
    error = no_route.why_no_match(contracts().get(QUERY), query(), views, "")
    assert error.code == code
    assert words in error.message


def test_a_view_says_what_it_is() -> None:
    view = _view()
    assert view.params == {"corpus": "probe"}
    assert view.key == (NODE, "aaaaaaaa", QUERY, '{"corpus":"probe"}')
    assert msgspec.structs.replace(view, node=OTHER).key != view.key


@pytest.mark.req("OTHERS-6")
def test_name_of_a_package_is_kept_from_the_own_node_alone() -> None:
    registry = Registry(NODE)
    for node in (NODE, OTHER):
        registry.update(node, (_offer(capability="hello.greet@1.0"),), withdrawn=False, heard_ms=HEARD)
    assert [view.node for view in registry.all_offers(HEARD)] == [NODE]
