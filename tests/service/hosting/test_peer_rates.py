"""What another node may ask here a second; what the own one may."""

from __future__ import annotations

import asyncio
import copy
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.bus.bus import Bus
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.core.config import LimitsConfig
from hearthnet.core.config_loader import parse_config
from hearthnet.core.errors import HearthNetError
from hearthnet.service.hosting import peer_rates
from hearthnet.service.hosting.peer_rates import AWAY_MS, OTHERS, PeerRates
from tests.attacks.attacker import Attacker
from tests.bus import failing_worker
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT, CHAT_BODY, QUERY, ProbeService, query
from tests.helpers.waiting import wait_for

NO_TOTAL = LimitsConfig(total_soft=0, total_hard=0)


def _waits(rates: PeerRates, count: int, now: int = 0, capability: str = QUERY, node: str = "n") -> list[int]:
    found = (rates.charge(node, capability, now) for _ in range(count))
    return [0 if refused is None else refused.wait_ms for refused in found]


@pytest.mark.req("RATE-1")
def test_ten_of_a_kind_at_once_and_ten_a_second() -> None:
    rates = PeerRates(NO_TOTAL)
    assert _waits(rates, 11) == [*[0] * 10, 101]
    assert _waits(rates, 1, 99) != [0]
    assert [bool(wait) for wait in _waits(rates, 2, 100)] == [False, True]
    assert [bool(wait) for wait in _waits(rates, 11, 1_300)] == [*[False] * 10, True]


@pytest.mark.req("RATE-1")
def test_who_is_told_to_wait_is_spread_and_passes_when_it_comes_back() -> None:
    rates = PeerRates(NO_TOTAL)
    waits = _waits(rates, 20)[10:]
    assert waits == [100 * number + 1 for number in range(1, 11)]
    assert [_waits(rates, 1, wait) for wait in waits] == [[0]] * 10
    many = _waits(PeerRates(NO_TOTAL), 80)
    assert max(many) <= 2_001


@pytest.mark.req("RATE-1")
def test_capabilities_and_nodes_have_meters_of_their_own_and_all_together_one_more() -> None:
    rates = PeerRates(LimitsConfig(total_soft=25, total_hard=0))
    assert _waits(rates, 10) + _waits(rates, 10, capability=CHAT) == [0] * 20
    assert [bool(wait) for wait in _waits(rates, 7, capability=OTHERS)] == [False] * 5 + [True] * 2
    refused = rates.charge("n", "llm.complete@1.0", 0)
    assert refused is not None
    assert (refused.capability, refused.limit) == ("", 25)
    assert _waits(rates, 10, node="m") == [0] * 10


@pytest.mark.req("RATE-1")
def test_who_goes_on_in_spite_of_refusals_is_told_to_stay_away() -> None:
    rates = PeerRates(NO_TOTAL)
    waits = _waits(rates, 110)
    assert all(wait <= 2_001 for wait in waits[:100])
    assert waits[105] > AWAY_MS
    assert _waits(rates, 1, AWAY_MS - 1) != [0]
    assert _waits(rates, 1, AWAY_MS + 2_100) == [0]
    # Not for longer and longer: asking on changes nothing.
    rates = PeerRates(NO_TOTAL)
    for now in range(0, AWAY_MS, 5):
        rates.charge("n", QUERY, now)
    assert _waits(rates, 1, 2 * AWAY_MS + 3_000) == [0]


@pytest.mark.req("RATE-1")
def test_zero_is_no_limit() -> None:
    assert _waits(PeerRates(LimitsConfig(0, 0, 0, 0)), 5_000) == [0] * 5_000


@pytest.mark.req("RATE-1")
@given(st.lists(st.integers(0, 400), max_size=80), st.integers(1, 6))
def test_no_second_holds_over_twice_the_limit_and_waiting_helps(pauses: list[int], soft: int) -> None:
    rates, now, passed = PeerRates(LimitsConfig(soft, 0, 0, 0)), 0, list[int]()
    for pause in pauses:
        now += pause
        refused = rates.charge("n", QUERY, now)
        if refused is None:
            passed.append(now)
        else:
            assert 0 < refused.wait_ms <= 2_001
            # Who waits as it was asked to, and asks no more before, is let in then.
            assert copy.deepcopy(rates).charge("n", QUERY, now + refused.wait_ms) is None
    for begin in passed:
        assert len([one for one in passed if begin <= one < begin + 1_000]) <= 2 * soft
    assert len(passed) <= soft + soft * now / 1_000 + 1e-6


@pytest.mark.req("RATE-1")
def test_of_many_nodes_the_idle_ones_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_rates, "_MOST_NODES", 8)
    rates = PeerRates(LimitsConfig())
    for number in range(8):
        _waits(rates, 1, node=str(number))
    _waits(rates, 1, now=1, node="new")
    assert len(rates._nodes) == 9
    _waits(rates, 12, now=20_000, node="0")
    _waits(rates, 1, now=20_000, node="newest")
    assert len(rates._nodes) == 2


@pytest.mark.req("RATE-2")
def test_the_limits_are_settings() -> None:
    text = "[limits]\ncapability_soft = 3\ntotal_hard = 0\n"
    assert parse_config(text, Path("x")).limits == LimitsConfig(3, 100, 100, 0)
    with pytest.raises(HearthNetError, match=r"line 2: limits\.capability_soft"):
        parse_config("[limits]\ncapability_soft = -1\n", Path("x"))


async def _codes(bus: Bus, view: OfferView, count: int) -> list[str]:
    """What each of `count` calls at once is answered, asked only once: the bus itself would try again."""
    asking = Attacker(bus)
    return await asyncio.gather(*(asking.call(view, QUERY, query()) for _ in range(count)))


@pytest.mark.req("RATE-2", "ATTACK-25")
@pytest.mark.asyncio
async def test_another_node_is_held_to_its_rate_and_the_own_one_is_not(mesh: Mesh) -> None:
    """A process of the node is called by two others at once: a member's, and one of its own node."""
    async with failing_worker.running(mesh), await mesh.bus() as bus, await mesh.guest_bus() as guest:
        await bus.call(QUERY, query())
        await guest.call(QUERY, query())
        view, began = await Attacker(guest).target(QUERY, bus.peer.node_id), time.monotonic()
        async with asyncio.TaskGroup() as group:
            own = group.create_task(_codes(bus, view, 90))
            others = group.create_task(_codes(guest, view, 90))
        most = 10 + 10 * (time.monotonic() - began)
        assert own.result() == ["ok"] * 90
        codes = Counter(others.result())
        assert codes == {"ok": codes["ok"], "rate_limited": 90 - codes["ok"]}, "each is answered"
        assert codes["ok"] <= most < 90
        async with guest.stream(CHAT, CHAT_BODY) as stream:
            assert [frame.event async for frame in stream][-1] == "done", "another capability"


@pytest.mark.req("RATE-2")
@pytest.mark.asyncio
async def test_who_has_time_gets_through_at_that_rate(mesh: Mesh) -> None:
    service = ProbeService(places=100)
    async with mesh.hosting(service), await mesh.guest_bus() as guest:
        began = time.monotonic()
        await guest.call(QUERY, query())
        replies = await asyncio.gather(*(guest.call(QUERY, query()) for _ in range(18)))
    assert all(reply.output for reply in replies)
    assert time.monotonic() - began > 0.89, "nine are over the ten at once, each a tenth of a second"


@pytest.mark.req("RATE-3", "ATTACK-40")
@pytest.mark.asyncio
async def test_refusals_are_rationed_and_the_rest_is_dropped(mesh: Mesh) -> None:
    count, began = 2_400, time.monotonic()
    async with mesh.hosting(ProbeService(places=100)) as host, await mesh.guest_bus() as guest:
        mallory = Attacker(guest)
        view = await mallory.target(QUERY, host.peer.node_id)
        for _ in range(count):
            inner = mallory.inner(mallory.header(view, QUERY, query()), query(), signed=False)
            await guest.peer.link.publish(mallory.subject(view, QUERY), mallory.boxed(inner, view))
        await wait_for(lambda: host.dropped >= count // 4, what="most to be dropped")
        await guest.peer.link.flush_subscriptions()
        seconds = time.monotonic() - began
        assert 100 <= host.refused <= 1_001 + 50 * seconds
