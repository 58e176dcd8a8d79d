"""The market when its file, its log or its server is damaged, lost or killed."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hearthnet.bus.bus import Bus
from hearthnet.bus.session.keyring import load_identity
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.service.effects.event_log import EventLog, Recorded
from hearthnet.supervisor.nats import streams
from hearthnet_market import MarketService
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import DEADLINE_SECONDS, wait_for

pytestmark = pytest.mark.asyncio


def _post(title: str) -> dict[str, Any]:
    text = {"client_id": ids.new_ulid(), "category": "offer", "title": title, "body": "To lend. " * 100}
    return {"params": {}, "input": text}


async def _titles(bus: Bus) -> list[str]:
    reply = await bus.call("market.list@1.0", {"params": {}, "input": {"limit": 500}})
    return [post["title"] for post in reply.output["posts"]]


async def _fill(bus: Bus, count: int) -> list[str]:
    for number in range(count):
        await bus.call("market.post@1.0", _post(f"post {number}"))
    return [f"post {number}" for number in reversed(range(count))]


def _tear(file: Path, first_page: int) -> None:
    """Pages from `first_page` on get other bytes, as a bad card gives them: the file is never short."""
    with file.open("r+b") as torn:
        for start in range(first_page * 4096, file.stat().st_size, 4096):
            torn.seek(start)
            torn.write(bytes(range(250)) * 8)


@pytest.mark.req("MARKET-4")
async def test_a_view_damaged_inside_is_derived_anew_at_the_start(mesh: Mesh) -> None:
    async with await mesh.bus() as bus:
        async with mesh.hosting(MarketService()):
            posted = await _fill(bus, 30)
        _tear(mesh.home.service("market") / "view.db", 3)
        async with mesh.hosting(MarketService()):
            assert await _titles(bus) == posted


@pytest.mark.req("MARKET-4", "ATTACK-148")
@pytest.mark.parametrize("how", ["another file", "torn"])
async def test_damaged_mutes_are_put_aside_and_the_market_starts(mesh: Mesh, how: str) -> None:
    file = mesh.home.service("market") / "mutes.db"
    async with await mesh.bus() as bus:
        async with mesh.hosting(MarketService()):
            posted = await _fill(bus, 2)
        if how == "torn":
            _tear(file, 1)
        else:
            file.write_bytes(b"no database at all" * 1_000)
        async with mesh.hosting(MarketService()) as host:
            assert await _titles(bus) == posted
            assert "muted authors are lost" in str(host._service.note)
            body = {
                "params": {},
                "input": {"author": load_identity(mesh.guest.device_key).node_id, "muted": True},
            }
            await bus.call("market.mute@1.0", body)
        assert [one.name for one in file.parent.glob("mutes.db.damaged")]
        async with mesh.hosting(MarketService()) as host:
            reply = await bus.call("market.list@1.0", {"params": {}, "input": {"muted": True}})
            assert (len(reply.output["muted"]), host._service.note) == (1, None)


@pytest.mark.req("MARKET-4")
async def test_a_view_damaged_while_it_is_used_is_derived_anew(mesh: Mesh) -> None:
    async with mesh.hosting(MarketService()), await mesh.bus() as bus:
        posted = await _fill(bus, 12)
        for file in mesh.home.service("market").glob("view.db*"):
            _tear(file, 0)
        assert await _titles(bus) == posted
        await bus.call("market.post@1.0", _post("after"))
        for file in mesh.home.service("market").glob("view.db*"):
            _tear(file, 0)
        await bus.call("market.post@1.0", _post("again"))
        assert await _titles(bus) == ["again", "after", *posted]


@pytest.mark.req("MARKET-4")
async def test_who_asks_while_the_view_is_derived_anew_waits_for_it(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_the_log, go_on = asyncio.Event(), asyncio.Event()
    read = EventLog.read

    async def slowly(log: EventLog, after: int) -> AsyncIterator[list[Recorded]]:
        at_the_log.set()
        await go_on.wait()
        async for batch in read(log, after):
            yield batch

    market, waiting = MarketService(), list[int]()
    catch_up = market._catch_up

    async def counted() -> None:
        waiting.append(1)
        await catch_up()

    async with mesh.hosting(market), await mesh.bus() as bus:
        posted = await _fill(bus, 3)
        monkeypatch.setattr(market, "_catch_up", counted)
        monkeypatch.setattr(EventLog, "read", slowly)
        for file in mesh.home.service("market").glob("view.db*"):
            _tear(file, 0)
        market._woken.set()
        await asyncio.wait_for(at_the_log.wait(), DEADLINE_SECONDS)
        # The one at the log may have begun before it could be counted.
        begun = len(waiting)
        asked = [
            asyncio.create_task(bus.call(f"market.{verb}@1.0", {"params": {}, "input": given}))
            for verb, given in (("list", {}), ("search", {"query": "post"}))
        ]
        await wait_for(lambda: len(waiting) == begun + 2, what="both to wait for the one that reads the log")
        assert not any(one.done() for one in asked)
        go_on.set()
        for reply in await asyncio.gather(*asked):
            assert sorted(post["title"] for post in reply.output["posts"]) == sorted(posted)


@pytest.mark.req("MARKET-4")
async def test_a_view_that_cannot_be_derived_anew_shows_no_empty_market(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unread(log: EventLog, after: int) -> AsyncIterator[list[Recorded]]:
        raise HearthNetError("partition", "the event log does not answer")
        yield []

    async with mesh.hosting(MarketService()), await mesh.bus() as bus:
        posted = await _fill(bus, 3)
        with monkeypatch.context() as patch:
            patch.setattr(EventLog, "read", unread)
            for file in mesh.home.service("market").glob("view.db*"):
                _tear(file, 0)
            with pytest.raises(HearthNetError, match="does not answer"):
                await _titles(bus)
        # Who asked in vain asks this process no more for a while; others get all of it.
        async with await mesh.bus() as other:
            assert await _titles(other) == posted


@pytest.mark.req("MARKET-10")
async def test_a_log_that_was_lost_takes_the_view_with_it(mesh: Mesh) -> None:
    async with await mesh.bus() as bus:
        async with mesh.hosting(MarketService()):
            await _fill(bus, 3)
        mesh.server.kill()
        shutil.rmtree(mesh.home.jetstream)
        mesh.server = mesh.server.again()
        async with await mesh.store() as store:
            await streams.ensure(store.js, mesh.home.jetstream)
        async with mesh.hosting(MarketService()):
            await bus.call("market.post@1.0", _post("new"))
            assert await _titles(bus) == ["new"]


@pytest.mark.req("MARKET-11")
async def test_posting_leaves_no_readers_behind(mesh: Mesh) -> None:
    async with mesh.hosting(MarketService()), await mesh.bus() as bus, await mesh.store() as store:
        await _fill(bus, 10)
        shutil.rmtree(mesh.home.service("market"))
        async with mesh.hosting(MarketService()):
            assert len(await _titles(bus)) == 10
        assert (await store.js.stream_info("MARKET")).state.consumer_count == 0


@pytest.mark.req("MARKET-11")
async def test_posts_go_on_through_a_server_that_dies_again_and_again(mesh: Mesh) -> None:
    done: list[str] = []
    posted = asyncio.Event()

    async def keep_posting(bus: Bus, name: int) -> None:
        for number in range(12):
            body = _post(f"{name} {number}")
            while body["input"]["client_id"] not in done:
                try:
                    await bus.call("market.post@1.0", body, timeout_seconds=30)
                except HearthNetError as error:
                    if error.code not in ("capacity_exceeded", "partition", "outcome_unknown"):
                        raise
                else:
                    done.append(body["input"]["client_id"])
                    posted.set()

    async with mesh.hosting(MarketService()) as host, await mesh.bus() as bus:
        posting = [asyncio.create_task(keep_posting(bus, name)) for name in range(3)]
        for _ in range(3):
            posted.clear()
            await asyncio.wait_for(posted.wait(), 60)
            mesh.restart_server()
        await asyncio.wait_for(asyncio.gather(*posting), 120)
        await wait_for(lambda: host.in_flight == 0, what="every place to be free")
        titles = await _titles(bus)
    assert sorted(titles) == sorted(f"{name} {number}" for name in range(3) for number in range(12))


class _Deaf(MarketService):
    """Never hears that somebody posted."""

    follow_seconds = 0.05


@pytest.mark.req("MARKET-7")
async def test_a_process_that_missed_the_word_of_a_post_finds_it(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with mesh.hosting(MarketService()), await mesh.bus() as bus:
        monkeypatch.setattr(EventLog, "watch", _unheard)
        deaf = _Deaf()
        async with mesh.hosting(deaf):
            await _fill(bus, 2)
            await wait_for(lambda: deaf._view._lamport() == 2, what="the deaf one to look")


async def _unheard(log: EventLog, woken: asyncio.Event) -> None:
    """Listens to nothing."""
