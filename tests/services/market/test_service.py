"""The market service on a real server."""

from __future__ import annotations

import asyncio
import shutil
from typing import Any

import msgspec
import pytest

from hearthnet.bus.bus import Bus
from hearthnet.contracts.registry import contracts
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.protocol import frame as frames
from hearthnet.service.effects.event_log import EventLog
from hearthnet.trust.keys import Identity
from hearthnet_market import MarketService
from tests.helpers.contract_examples import missing_from_output, request_of
from tests.helpers.mesh import Mesh
from tests.helpers.service_processes import call_at, processes_of_service
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio


def _post(title: str = "Water filter", **fields: Any) -> dict[str, Any]:
    text = {"client_id": ids.new_ulid(), "category": "offer", "title": title, "body": "To lend.", **fields}
    return {"params": {}, "input": text}


def _body(**fields: Any) -> dict[str, Any]:
    return {"params": {}, "input": fields}


async def _titles(bus: Bus) -> list[str]:
    reply = await bus.call("market.list@1.0", _body())
    return [post["title"] for post in reply.output["posts"]]


@pytest.mark.req("MARKET-1")
async def test_a_post_is_seen_at_once_and_after_a_restart(mesh: Mesh) -> None:
    async with await mesh.bus() as bus:
        async with mesh.hosting(MarketService()):
            posted = await bus.call("market.post@1.0", _post())
            assert await _titles(bus) == ["Water filter"]
        shutil.rmtree(mesh.home.service("market"))
        async with mesh.hosting(MarketService()):
            found = await bus.call("market.search@1.0", _body(query="filters"))
    assert found.output["posts"][0]["event_id"] == posted.output["event_id"]
    assert found.meta["degraded"] is True


@pytest.mark.req("MARKET-7")
async def test_two_processes_show_each_others_posts(mesh: Mesh) -> None:
    with mesh.published():
        async with (
            await mesh.bus() as bus,
            processes_of_service(bus, mesh.home, "market.list@1.0", 2) as market,
        ):
            for number in range(6):
                await call_at(bus, market.views[number % 2], "market.post@1.0", _post(f"post {number}"))

            async def everywhere() -> bool:
                asked = [call_at(bus, view, "market.list@1.0", _body()) for view in market.views]
                replies = await asyncio.gather(*asked)
                shown = [[post["title"] for post in reply.output["posts"]] for reply in replies]
                return shown == [[f"post {number}" for number in reversed(range(6))]] * 2

            await wait_for(everywhere, what="both views to follow")


@pytest.mark.req("MARKET-2")
async def test_a_post_ends_once(mesh: Mesh) -> None:
    async with mesh.hosting(MarketService()), await mesh.bus() as bus:
        event_id = (await bus.call("market.post@1.0", _post())).output["event_id"]
        end = _body(client_id=ids.new_ulid(), event_id=event_id, reason="fulfilled")
        first = await bus.call("market.expire@1.0", end)
        assert (await bus.call("market.expire@1.0", end)).output == first.output
        assert await _titles(bus) == []
        since = await bus.call("market.list@1.0", _body(since_lamport=1))
        assert since.output["removed"] == [event_id]
        with pytest.raises(HearthNetError) as caught:
            await bus.call(
                "market.expire@1.0", _body(client_id=ids.new_ulid(), event_id=event_id, reason="stale")
            )
    assert caught.value.code == "not_found"


@pytest.mark.req("MARKET-6")
async def test_overdue_posts_are_swept(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MarketService, "sweep_seconds", 0.05)
    monkeypatch.setattr("hearthnet_market.upkeep.least_ms", lambda: now_ms() + 86_400_000)
    async with mesh.hosting(MarketService()), await mesh.bus() as bus:
        await bus.call("market.post@1.0", _post("for a month", ttl_seconds=2_592_000))
        for _ in range(2):
            made = (await bus.call("market.post@1.0", _post("for an hour", ttl_seconds=3600))).output

            async def ended(place: int = made["lamport"]) -> Any:
                return (await bus.call("market.list@1.0", _body(since_lamport=place))).output["ended"]

            [end] = await wait_for(ended, what="the sweep")
            assert (end["event_id"], end["reason"]) == (made["event_id"], "stale")
        assert await _titles(bus) == ["for a month"]
        assert (await bus.call("market.list@1.0", _body())).output["max_lamport"] == 5


@pytest.mark.req("MARKET-8")
async def test_the_log_proves_who_asked_for_what(mesh: Mesh) -> None:
    async with mesh.hosting(MarketService()), await mesh.bus() as bus, await mesh.store() as store:
        body = _post()
        await bus.call("market.post@1.0", body)
        log = EventLog(store, "MARKET", "mk.post", bus.peer.community)
        events = [recorded.event async for batch in log.read(0) for recorded in batch]
    assert len(events) == 1
    frame = frames.read_signed(ids.unb64(events[0].frame), mesh.identity.node_id)
    assert msgspec.json.decode(frame.body) == body
    with pytest.raises(frames.FrameError):
        frames.read_signed(ids.unb64(events[0].frame), Identity.generate().node_id)


def _examples() -> list[Any]:
    names = [offer.capability for offer in MarketService().offers()]
    return [
        pytest.param(name, index, id=f"{name}-{index}")
        for name in names
        for index in range(len(contracts().get(name).examples))
    ]


async def _prepare(bus: Bus, other: Bus, given: dict[str, Any]) -> dict[str, Any]:
    """Posts what an example takes for granted; what that returned."""
    made = [
        await bus.call("market.post@1.0", {"params": {}, "input": post}) for post in given.get("posts", [])
    ]
    ids_of = {
        post["client_id"]: reply.output["event_id"]
        for post, reply in zip(given.get("posts", []), made, strict=True)
    }
    for hiding in given.get("hidings", []):
        request = {"params": {}, "input": {**hiding, "event_id": ids_of[hiding["event_id"]]}}
        await bus.call("market.hide@1.0", request)
    others = [
        await other.call("market.post@1.0", {"params": {}, "input": post})
        for post in given.get("others_posts", [])
    ]
    reserved = [
        await other.call("market.reserve@1.0", _body(**{**one, "event_id": ids_of[one["event_id"]]}))
        for one in given.get("reservations", [])
    ]
    replies = {"posts": made, "others_posts": others, "reservations": reserved}
    return {name: [reply.output for reply in there] for name, there in replies.items()}


@pytest.mark.req("MARKET-9")
@pytest.mark.parametrize(("name", "index"), _examples())
async def test_the_examples_of_the_contracts_are_true(mesh: Mesh, name: str, index: int) -> None:
    example = contracts().get(name).examples[index]
    async with mesh.hosting(MarketService()), await mesh.bus() as bus, await mesh.guest_bus() as other:
        made = await _prepare(bus, other, example.get("given", {}))
        request = request_of(example, made)
        if "error" in example:
            with pytest.raises(HearthNetError) as caught:
                await bus.call(name, request)
            assert caught.value.code == example["error"]
            path = caught.value.details.get("path")
            assert path == example.get("path", path)
            return
        reply = await bus.call(name, request)
        assert not missing_from_output(example.get("expect", {}), reply.output, [])
