"""The clock of another node, learned from what it refuses."""

from __future__ import annotations

import asyncio

import pytest

from hearthnet.bus.session import sender
from hearthnet.bus.session.sender import CLOCK_RULE, ClockOffsets
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT, CHAT_BODY, QUERY, ProbeService, query


def _expired(ahead_ms: object, rule: str = CLOCK_RULE) -> HearthNetError:
    now = now_ms() + ahead_ms if isinstance(ahead_ms, int) else ahead_ms
    return HearthNetError("expired", "too old", details={"now": now, "rule": rule})


@pytest.mark.req("BUS-30")
def test_the_time_of_a_node_is_learned_once_and_for_it_alone() -> None:
    times = ClockOffsets()
    assert times.update("a", _expired(300_000), times.ahead("a"))
    assert not times.update("a", _expired(300_000), times.ahead("a"))
    assert abs(times.time_at("a") - now_ms() - 300_000) < 1_000
    assert abs(times.time_at("b") - now_ms()) < 1_000


@pytest.mark.req("BUS-30")
@pytest.mark.parametrize(
    "error", [_expired(300_000, "approval"), _expired("soon"), HearthNetError("timeout", "")]
)
def test_other_errors_tell_no_time(error: HearthNetError) -> None:
    assert not ClockOffsets().update("a", error, 0)


@pytest.mark.req("BUS-30")
def test_no_more_nodes_are_kept_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "_MOST_NODES", 2)
    times = ClockOffsets()
    for node in ("a", "b", "c"):
        assert times.update(node, _expired(300_000), 0)
    assert abs(times.time_at("a") - now_ms()) < 1_000
    assert abs(times.time_at("c") - now_ms() - 300_000) < 1_000


@pytest.mark.req("BUS-30")
@pytest.mark.asyncio
async def test_a_stream_is_opened_again_by_the_providers_clock(mesh: Mesh) -> None:
    async with mesh.hosting(ProbeService()) as host, await mesh.bus() as bus:
        bus.peer.sender.clocks._ahead[host.peer.node_id] = -300_000
        async with bus.stream(CHAT, CHAT_BODY) as stream:
            events = [frame.event async for frame in stream]
        assert abs(bus.peer.sender.clocks.ahead(host.peer.node_id)) < 10_000, (
            "it was refused, and the time learned"
        )
    assert events == ["token", "token", "token", "done"]


@pytest.mark.req("BUS-30")
def test_of_many_that_were_refused_at_once_each_is_worth_repeating_and_only_once() -> None:
    times = ClockOffsets()
    assert all(times.update("a", _expired(300_000), 0) for _ in range(3))
    assert not times.update("a", _expired(300_000), times.ahead("a"))


@pytest.mark.req("BUS-30", "BUS-96")
@pytest.mark.asyncio
async def test_many_calls_at_once_by_a_wrong_clock_are_all_made_again(mesh: Mesh) -> None:
    mesh.home.config_file.write_text("[limits]\ncapability_soft = 0\ntotal_soft = 0\n")
    async with mesh.hosting(ProbeService(places=64)) as host, await mesh.guest_bus() as bus:
        await bus.call(QUERY, query())
        bus.peer.sender.clocks._ahead[host.peer.node_id] = -300_000
        came = await asyncio.gather(*(bus.call(QUERY, query(), timeout_seconds=30) for _ in range(60)))
        assert len(came) == 60
        assert abs(bus.peer.sender.clocks.ahead(host.peer.node_id)) < 10_000, (
            "they were refused, and the time learned"
        )
        assert bus.peer.traces.dropped["caller"]() == 0
