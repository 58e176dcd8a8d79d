"""Which of the known offers a call goes to: fit, load, health, nearness, chance; sessions; retries."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthnet.bus.routing import routing_table
from hearthnet.bus.routing.health import FIRST_RETRIES, MAX_RETRIES, QUARANTINE_MS, Retries
from hearthnet.bus.routing.offer_registry import MOST_FAILING, OfferView, Registry
from hearthnet.bus.routing.routing_table import RoutingEntry, RoutingTable
from hearthnet.bus.routing.session_affinity import (
    IDLE_MS,
    LONGEST_NAME,
    MOST_SESSIONS,
    SessionAffinity,
    check_session,
)
from hearthnet.contracts.registry import contracts
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol.offer import OfferRecord
from tests.helpers.probe import CHAT, CHAT_BODY, MODEL, QUERY, query

NODE, OTHER = ids.node_id(bytes(32)), ids.node_id(bytes([1]) * 32)
HEARD = 3_000


class _Asker:
    def __init__(self, body: dict[str, Any] | None = None, tried: tuple[str, ...] = ()) -> None:
        self.body = body or query()
        self.tried = tried

    def accepts(self, view: OfferView) -> bool:
        return view.offer.instance not in self.tried


def _offer(**changes: Any) -> OfferRecord:
    name = changes.get("capability", QUERY)
    fields: dict[str, Any] = {
        "capability": QUERY,
        "instance": "aaaaaaaa",
        "schema_hash": contracts().get(name).schema_hash if name in (QUERY, CHAT) else "blake3:" + "1" * 64,
        "params": {"corpus": "probe"},
        "max_concurrent": 4,
        "in_flight": 0,
        "issued_at": 1_000,
        "expires_at": 31_000,
    }
    return OfferRecord(**{**fields, **changes})


def _known(*offers: tuple[str, OfferRecord], contract: str = QUERY) -> tuple[Registry, RoutingTable]:
    registry = Registry(NODE)
    table = registry.table(contracts().get(contract))
    for node, offer in offers:
        registry.update(node, (offer,), withdrawn=False, heard_ms=HEARD)
    return registry, table


def _best(table: RoutingTable, asker: _Asker | None = None) -> RoutingEntry:
    found = table.best(asker or _Asker())
    assert found is not None
    return found


def _instances(table: RoutingTable, asker: _Asker | None = None, times: int = 200) -> set[str]:
    found = (table.best(asker or _Asker()) for _ in range(times))
    return {listing.view.offer.instance for listing in found if listing is not None}


def _call(
    registry: Registry, listing: RoutingEntry, code: str | None = "", ms: float = 10, at: int = HEARD
) -> None:
    registry.call_started(listing)
    registry.call_finished(listing, code, ms, at)


@pytest.mark.req("BUS-15")
@pytest.mark.parametrize("first", [True, False])
def test_only_what_fits_is_a_candidate(first: bool) -> None:
    """Whether the table is there before the offers or after them."""
    offers = (
        _offer(instance="bbbbbbbb", params={"corpus": "other"}),
        _offer(instance="cccccccc", schema_hash="blake3:" + "0" * 64),
        _offer(instance="dddddddd", params={"corpus": 7}),
        _offer(instance="eeeeeeee", capability="rag.query@0.9"),
        _offer(instance="ffffffff", capability="rag.query@1.1"),
        _offer(),
    )
    registry, contract = Registry(NODE), contracts().get(QUERY)
    if first:
        registry.table(contract)
    for offer in offers:
        registry.update(OTHER, (offer,), withdrawn=False, heard_ms=HEARD)
    table = registry.table(contract)
    assert _instances(table) == {"aaaaaaaa", "ffffffff"}
    anywhere = _Asker({"params": {}, "input": {"query": "x"}})
    assert _instances(table, anywhere) == {"aaaaaaaa", "bbbbbbbb", "ffffffff"}
    assert table.best(_Asker(query(corpus="nowhere"))) is None
    registry.update(OTHER, offers, withdrawn=True, heard_ms=HEARD)
    assert table.best(anywhere) is None
    assert not table.entries


@pytest.mark.req("BUS-15")
def test_an_offer_whose_contract_changes_is_judged_anew() -> None:
    registry, table = _known((OTHER, _offer()))
    registry.update(
        OTHER, (_offer(schema_hash="blake3:" + "0" * 64, issued_at=2_000),), withdrawn=False, heard_ms=HEARD
    )
    assert table.best(_Asker()) is None
    registry.update(OTHER, (_offer(issued_at=3_000),), withdrawn=False, heard_ms=HEARD)
    assert _best(table)


@pytest.mark.req("BUS-15")
def test_params_that_no_index_holds_are_compared_too() -> None:
    small, large = dict(MODEL, ctx=100), dict(MODEL, ctx=9_000, models=["probe", "else"])
    _, table = _known(
        (OTHER, _offer(capability=CHAT, params=small)),
        (OTHER, _offer(capability=CHAT, params=large, instance="bbbbbbbb")),
        contract=CHAT,
    )
    wants = CHAT_BODY["input"]
    assert _instances(table, _Asker({"params": {"ctx": 500}, "input": wants})) == {"bbbbbbbb"}
    assert _instances(table, _Asker({"params": {"model": "else"}, "input": wants})) == {"bbbbbbbb"}
    both = _Asker({"params": {"model": "probe", "ctx": 50}, "input": wants})
    assert _instances(table, both) == {"aaaaaaaa", "bbbbbbbb"}
    assert table.best(_Asker({"params": {"model": "else", "ctx": 99_999}, "input": wants})) is None


@pytest.mark.req("BUS-15")
def test_the_own_node_comes_first_until_its_load_is_high() -> None:
    registry, table = _known((NODE, _offer(max_concurrent=5)), (OTHER, _offer(instance="bbbbbbbb")))
    for _ in range(4):
        near = _best(table)
        assert near.view.node == NODE
        registry.call_started(near)
    assert _best(table).view.node == OTHER


@pytest.mark.req("BUS-15")
def test_what_was_full_when_announced_is_asked_last_and_own_calls_fill_places() -> None:
    registry, table = _known(
        (NODE, _offer(in_flight=4)),
        (OTHER, _offer(instance="bbbbbbbb", max_concurrent=1)),
    )
    free = _best(table)
    assert free.view.offer.instance == "bbbbbbbb"
    registry.call_started(free)
    told_full = _best(table)
    assert told_full.view.offer.instance == "aaaaaaaa", "it may have places by now: its process knows"
    assert table.best(_Asker(tried=("aaaaaaaa",))) is None, "this caller itself takes the only place"
    registry.call_finished(free, "", 5, HEARD)
    assert _best(table) is free


@pytest.mark.req("BUS-15")
def test_own_calls_count_as_load_between_announcements_and_once_after() -> None:
    registry, table = _known((OTHER, _offer(max_concurrent=10)))
    listing = _best(table)
    for _ in range(3):
        registry.call_started(listing)
    assert listing.running == 3
    registry.update(
        OTHER,
        (_offer(max_concurrent=10, in_flight=5, issued_at=2_000),),
        withdrawn=False,
        heard_ms=HEARD,
    )
    assert listing.running == 5, "the three are among the five"
    registry.call_started(listing)
    assert listing.running == 6
    for _ in range(4):
        registry.call_finished(listing, "", 5, HEARD)
    assert listing.running == 2


@pytest.mark.req("BUS-15")
def test_the_quicker_the_freer_and_the_more_reliable_process_is_asked() -> None:
    def two(**second: Any) -> tuple[Registry, RoutingTable, RoutingEntry, RoutingEntry]:
        offers = _offer(), _offer(**{"instance": "bbbbbbbb", **second})
        registry, table = _known(*((OTHER, offer) for offer in offers))
        one, other = sorted(table.entries, key=lambda listing: listing.key)
        return registry, table, one, other

    registry, table, quick, slow = two()
    _call(registry, quick, ms=20)
    _call(registry, slow, ms=200)
    assert _best(table) is quick
    assert quick.score() == 20
    registry, table, free, busy = two(max_concurrent=8)
    for listing in (free, busy):
        _call(registry, listing, ms=200)
    for _ in range(3):
        registry.call_started(busy)
    assert [_best(table) for _ in range(50)] == [free] * 50
    registry, table, good, bad = two()
    for listing in (good, bad):
        _call(registry, listing, ms=20)
    _call(registry, bad, "internal_error", ms=20)
    assert _best(table) is good
    assert bad.score() == 20 + 500


@pytest.mark.req("ATTACK-42")
@pytest.mark.parametrize("claims", [1, 8])
def test_claims_about_load_bring_a_node_no_more_calls(claims: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four nodes that answer as fast, one says that it has ten thousand places and no call, in each of its
    offers; the others say that three of their four places are taken.
    """
    monkeypatch.setattr(routing_table, "random", Random(20261124).random)
    honest = [f"ed25519:{ids.b64(bytes([number]) * 32)}" for number in range(2, 5)]
    offers = [
        *((node, _offer(instance=f"{number:08}", in_flight=3)) for number, node in enumerate(honest)),
        *((OTHER, _offer(instance=f"liar{number:04}", max_concurrent=10_000)) for number in range(claims)),
    ]
    registry, table = _known(*offers)
    asked = Counter[str]()
    for _ in range(400):
        entry = _best(table)
        asked[entry.view.node] += 1
        _call(registry, entry, ms=20)
    at_first = Counter(_best(_known(*offers)[1]).view.node for _ in range(400))
    for found in (asked, at_first):
        assert all(found[node] > 400 / 8 for node in honest)
        assert found[OTHER] < 400 * 0.4


@pytest.mark.req("ATTACK-42")
@pytest.mark.parametrize("measured", [False, True])
def test_hundreds_of_offers_bring_a_node_no_more_calls(
    measured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing_table, "random", Random(20261124).random)
    honest = f"ed25519:{ids.b64(bytes([2]) * 32)}"
    many = [(OTHER, _offer(instance=f"m{number:07}")) for number in range(511)]
    registry, table = _known(*many, (honest, _offer()))
    for entry in list(table.entries) if measured else []:
        _call(registry, entry, ms=20)
    found = Counter(_best(table).view.node for _ in range(400))
    assert 400 * 0.4 < found[honest] < 400 * 0.6


@pytest.mark.req("ATTACK-42", "BUS-24")
def test_new_names_for_processes_that_fail_bring_no_more_calls() -> None:
    registry, table = _known()
    failed = 0
    for number in range(30):
        offer = _offer(instance=f"new{number:05}", issued_at=1_000 + number)
        registry.update(OTHER, (offer,), withdrawn=False, heard_ms=HEARD)
        entry = table.best(_Asker())
        if entry is not None:
            failed += 1
            _call(registry, entry, "internal_error")
            registry.update(OTHER, (offer,), withdrawn=True, heard_ms=HEARD)
    assert failed == MOST_FAILING
    at = HEARD + QUARANTINE_MS
    registry.update(OTHER, (_offer(instance="bbbbbbbb"),), withdrawn=False, heard_ms=at)
    _call(registry, _best(table), "", at=at)
    registry.update(OTHER, (_offer(instance="cccccccc"),), withdrawn=False, heard_ms=at)
    assert _instances(table) == {"bbbbbbbb", "cccccccc"}


@pytest.mark.req("ATTACK-42")
def test_who_claims_to_be_full_is_called_last() -> None:
    registry, table = _known((OTHER, _offer(in_flight=4)), (OTHER, _offer(instance="bbbbbbbb")))
    for entry in list(table.entries):
        _call(registry, entry, ms=20)
    assert _instances(table) == {"bbbbbbbb"}


@pytest.mark.req("BUS-15")
def test_fifty_milliseconds_go_to_the_own_node() -> None:
    registry, table = _known(
        (NODE, _offer(max_concurrent=10)), (OTHER, _offer(instance="bbbbbbbb", max_concurrent=10))
    )
    near, far = _best(table), _best(table, _Asker(tried=("aaaaaaaa",)))
    for entry in (near, far):
        _call(registry, entry, ms=30)
    assert near.score() == far.score() - 50
    registry.update(NODE, (_offer(in_flight=9, max_concurrent=10),), withdrawn=False, heard_ms=0)
    assert near.score() == int(30 * 1.9) - 50


@pytest.mark.req("BUS-15")
def test_equal_candidates_are_picked_by_chance() -> None:
    offers = [(OTHER, _offer(instance=f"{number:08}")) for number in range(4)]
    _, table = _known(*offers)
    assert len(_instances(table)) == 4
    assert _instances(table, _Asker(tried=("00000000", "00000001"))) == {"00000002", "00000003"}


@pytest.mark.req("BUS-24")
def test_a_process_that_fails_is_left_alone_for_a_minute_and_then_tried_by_one_call() -> None:
    registry, table = _known((OTHER, _offer()), (OTHER, _offer(params={"corpus": "other"})))
    listing = _best(table)
    for _ in range(10):
        _call(registry, listing, "internal_error")
    assert table.best(_Asker()) is None
    other = _best(table, _Asker(query(corpus="other")))
    assert len(other.health) == 0, "what else this process offers is not blamed"
    # Announced as ever, meanwhile: that says nothing about its health.
    for again in (20_000, 40_000, 59_999):
        times = {"issued_at": again, "expires_at": again + 30_000}
        offers = _offer(**times), _offer(params={"corpus": "other"}, **times)
        registry.update(OTHER, offers, withdrawn=False, heard_ms=HEARD + again)
    assert table.best(_Asker()) is None
    registry.drop_expired(HEARD + QUARANTINE_MS)
    tried = _best(table)
    registry.call_started(tried)
    assert table.best(_Asker()) is None, "one call only"
    registry.call_finished(tried, "timeout", 9_000, HEARD + QUARANTINE_MS)
    assert table.best(_Asker()) is None
    for again in (80_000, 100_000):
        offer = _offer(issued_at=again, expires_at=again + 30_000)
        registry.update(OTHER, (offer,), withdrawn=False, heard_ms=HEARD + again)
    registry.drop_expired(HEARD + 2 * QUARANTINE_MS)
    tried = _best(table)
    registry.call_started(tried)
    registry.call_finished(tried, "", 12, HEARD + 2 * QUARANTINE_MS)
    assert _best(table).health.p50_ms == 12
    _call(registry, tried, "internal_error")
    assert _best(table), "it begins anew"


@pytest.mark.req("BUS-24")
def test_a_process_that_leaves_in_quarantine_is_forgotten() -> None:
    registry, table = _known((OTHER, _offer()))
    listing = _best(table)
    for _ in range(10):
        _call(registry, listing, "partition")
    registry.drop_instance(OTHER, "aaaaaaaa")
    registry.call_finished(listing, "", 5, HEARD)
    assert len(registry) == 0
    registry.drop_expired(HEARD + QUARANTINE_MS)
    assert not registry._ends, "its end is passed over when it comes"
    assert table.best(_Asker()) is None


@settings(max_examples=60)
@pytest.mark.req("BUS-15")
@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.sampled_from(["offer", "gone", "begin", "end", "fail", "wait"]),
            st.integers(0, 3),
        ),
        max_size=120,
    )
)
def test_whatever_happens_the_order_is_that_of_the_scores(steps: list[tuple[int, str, int]]) -> None:
    registry, now = Registry(NODE), HEARD
    table = registry.table(contracts().get(QUERY))
    running: list[RoutingEntry] = []
    for number, what, value in steps:
        node, instance = (NODE, OTHER)[number % 2], f"{number:08}"
        offer = _offer(
            instance=instance, in_flight=value, issued_at=now, expires_at=now + 30_000, max_concurrent=3
        )
        known = [listing for listing in table.entries if listing.view.offer.instance == instance]
        if what in ("offer", "gone"):
            registry.update(node, (offer,), withdrawn=what == "gone", heard_ms=now)
        elif what == "begin" and known:
            registry.call_started(known[0])
            running.append(known[0])
        elif what in ("end", "fail") and running:
            registry.call_finished(
                running.pop(value % len(running)), "" if what == "end" else "timeout", 600 + value, now
            )
        else:
            now += value * 9_000
            registry.drop_expired(now)
        everybody = table._all[1]
        standing = {entry[2] for entry in everybody}
        assert everybody == sorted(everybody)
        assert all(entry[2].rank is entry for entry in everybody)
        if len(everybody) > 1:  # the rank of one that stands alone decides nothing
            assert all(entry[0] == entry[2].score() for entry in everybody)
        assert standing == {one for one in table.entries if one.health.may_be_called}
        assert {entry[2] for entry in table._all[0]} == {one for one in standing if one.is_near}
        found = table.best(_Asker())
        if found is not None and not any(one.is_near for one in standing):
            assert found.score() == min(one.score() for one in standing if not one.is_full)


@pytest.mark.req("BUS-25")
def test_a_session_stays_until_it_is_idle_for_ten_minutes_or_its_process_is_gone() -> None:
    registry, table = _known((OTHER, _offer()))
    sticky, listing = SessionAffinity(), _best(table)
    sticky.put("t", "mine", listing, 0)
    assert sticky.get("t", "mine", IDLE_MS - 1) is listing
    assert sticky.get("u", "mine", 0) is None
    sticky.put("t", "mine", listing, 5_000)
    assert sticky.get("t", "mine", 5_000 + IDLE_MS - 1) is listing
    assert sticky.get("t", "mine", 5_000 + IDLE_MS) is None
    assert len(sticky._places) == 0
    sticky.put("t", "mine", listing, 0)
    registry.drop_instance(OTHER, "aaaaaaaa")
    assert sticky.get("t", "mine", 1) is None


@pytest.mark.req("BUS-25")
def test_of_very_many_sessions_the_longest_idle_is_forgotten() -> None:
    _, table = _known((OTHER, _offer()))
    sticky, listing = SessionAffinity(), _best(table)
    for number in range(MOST_SESSIONS):
        sticky.put("t", str(number), listing, 0)
    sticky.put("t", "0", listing, 1)
    sticky.put("t", "new", listing, 1)
    assert len(sticky._places) == MOST_SESSIONS
    assert sticky.get("t", "1", 2) is None
    assert sticky.get("t", "0", 2) is listing
    check_session("x" * LONGEST_NAME)
    with pytest.raises(HearthNetError, match="64"):
        check_session("x" * (LONGEST_NAME + 1))


@pytest.mark.req("BUS-26")
def test_asking_again_has_a_budget() -> None:
    retries = Retries(0)
    assert sum(retries.spend(0) for _ in range(500)) == FIRST_RETRIES
    for _ in range(200):
        retries.earn()
    assert sum(retries.spend(0) for _ in range(500)) in (19, 20)
    assert sum(retries.spend(1_000) for _ in range(500)) in (10, 11)
    for _ in range(100_000):
        retries.earn()
    assert sum(retries.spend(2_000) for _ in range(500)) == MAX_RETRIES
