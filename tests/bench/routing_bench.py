"""What it costs to choose a process, and to know of one.

See: docs/protocol/discovery.md#choosing.
"""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any, Final

from hearthnet.bus.routing.health import WINDOW
from hearthnet.bus.routing.offer_registry import OfferView, Registry
from hearthnet.bus.routing.routing_table import RoutingEntry, RoutingTable
from hearthnet.contracts.registry import contracts
from hearthnet.core import ids
from hearthnet.protocol import offer as offers
from hearthnet.protocol.offer import LIFETIME_MS, Notice, OfferRecord
from tests.bench.figures import Figure, microseconds

OFFERS: Final = 1_000
_QUERY: Final = "rag.query@1.0"
_CORPORA: Final = 10


class _Caller:
    """A call that any node may answer."""

    def __init__(self, **params: str) -> None:
        self.body: dict[str, Any] = {"params": params, "input": {"query": "water"}}

    def accepts(self, view: OfferView) -> bool:
        return True


def figures() -> list[Figure]:
    """One decision, with what a call changes in the order before and after; one offer with its health."""
    size = offer_bytes(OFFERS)
    registry, table = _known(OFFERS)
    caller, everybody, now = _Caller(corpus="corpus-3"), _Caller(), 2_000

    def choose(asker: _Caller = everybody) -> RoutingEntry:
        registry.drop_expired(now)
        chosen = table.best(asker)
        if chosen is None:
            raise RuntimeError("nobody was found")
        return chosen

    def whole() -> None:
        chosen = choose()
        registry.call_started(chosen)
        registry.call_finished(chosen, "", 12.0, now)

    work = {"any": choose, "one": lambda: choose(caller), "whole": whole}
    cost = microseconds(work, number=200)
    return [
        Figure("route.1000_us", cost["any"], "us", "< 20", "choose among 1,000 offers that all fit"),
        Figure("route.match_us", cost["one"], "us", "< 20", "the same by a param that one in ten has"),
        Figure("route.call_us", cost["whole"], "us", "< 20", "choose, begin, end: with load and health"),
        Figure("registry.offer_bytes", size, "bytes", "< 2048", "an offer known, its health window full"),
    ]


def offer_bytes(count: int) -> float:
    """What one of `count` offers takes in memory, the order and the health window included."""
    _known(10)  # what is loaded at first use
    tracemalloc.start()
    try:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        known = _known(count)
        gc.collect()
        size = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    return size / len(known[0])


def _known(count: int) -> tuple[Registry, RoutingTable]:
    """Offers of as many nodes, as they come from the wire, each asked 100 times."""
    registry = Registry(ids.node_id(bytes(32)))
    contract = contracts().get(_QUERY)
    table = registry.table(contract)
    for number in range(1, count + 1):
        node = ids.node_id(number.to_bytes(32, "big"))
        record = OfferRecord(
            capability=_QUERY,
            instance=f"{number:08}",
            schema_hash=contract.schema_hash,
            params={"corpus": f"corpus-{number % _CORPORA}", "k_max": 20},
            max_concurrent=8,
            in_flight=number % 3,
            issued_at=1_000,
            expires_at=1_000 + LIFETIME_MS,
            service="rag",
            version="0.1.0",
        )
        notice = offers.decode(offers.encode(Notice((record,))))
        registry.update(node, notice.offers, withdrawn=False, heard_ms=1_000)
    for listing in list(table.entries):
        for call in range(WINDOW):
            registry.call_started(listing)
            registry.call_finished(
                listing, "" if call % 10 else "internal_error", 5.0 + listing.serial % 90, 1_500
            )
    return registry, table
