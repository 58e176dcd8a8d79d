"""Calls that wait: kept whole, sent once, never too late, never altered."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from hearthnet.bus.outbox import Outbox
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.trust.keys import Identity

NOW = 1_700_000_000_000
POST = "market.post@1.0"


class World:
    """An outbox, and somebody who answers its calls or does not."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder)
        self.identity = Identity.generate()
        self.outbox = Outbox(self.home, self.identity)
        self.sent: list[str] = []
        self.code = ""
        self.now = NOW

    def put(self, client_id: str = "", capability: str = POST, **given: Any) -> str:
        """Keeps a post for an hour; its client id."""
        client_id = client_id or ids.new_ulid()
        body = {"params": {}, "input": {"client_id": client_id, **given}}
        return self.outbox.put(capability, body, community="c", now_ms=self.now, seconds=3600).id

    async def send(self, capability: str, body: dict[str, Any]) -> None:
        """Answers, or refuses with `code`."""
        assert capability == POST
        self.sent.append(body["input"]["client_id"])
        if self.code:
            raise HearthNetError(self.code, "it is so")

    async def deliver(self) -> list[str]:
        """What was answered."""
        return await self.outbox.deliver(self.send, lambda: self.now)

    def codes(self) -> dict[str, str]:
        """What is there, and why it is not sent."""
        return {state.call.id: state.code for state in self.outbox.states(self.now)}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


pytestmark = pytest.mark.asyncio


@pytest.mark.req("MARKET-22")
async def test_what_waits_is_sent_in_its_order_and_gone_once_it_is_answered(world: World) -> None:
    assert await world.deliver() == []
    first, second = sorted(ids.new_ulid() for _ in range(2))
    world.put(second, title="b")
    world.put(first, title="a")
    world.code = "partition"
    assert await world.deliver() == []
    assert world.sent == [first]
    assert world.codes() == {first: "", second: ""}
    modes = {file.name: file.stat().st_mode & 0o777 for file in world.home.outbox.glob("*.json")}
    assert modes == {f"{first}.json": 0o600, f"{second}.json": 0o600}
    world.code = ""
    assert await world.deliver() == [first, second]
    assert world.codes() == {}
    assert (world.home.outbox.stat().st_mode & 0o777) == 0o700


@pytest.mark.req("MARKET-22")
@pytest.mark.parametrize(
    "code", ["partition", "timeout", "outcome_unknown", "capacity_exceeded", "rate_limited", "not_found"]
)
async def test_what_may_be_sent_again_waits_on(world: World, code: str) -> None:
    one = world.put(title="a")
    world.code = code
    assert await world.deliver() == []
    assert world.codes() == {one: ""}
    world.code = ""
    assert await world.deliver() == [one]
    assert world.sent == [one, one]


@pytest.mark.req("MARKET-22")
async def test_a_call_that_is_over_a_quota_waits_until_its_time_and_others_go_on(world: World) -> None:
    over, other = world.put(), world.put()

    async def send(capability: str, body: dict[str, Any]) -> None:
        await world.send(capability, body)
        if body["input"]["client_id"] == over and world.now < NOW + 60_000:
            raise HearthNetError("rate_limited", "not today", retry_after_ms=60_000)

    for now, done in ((NOW, [other]), (NOW + 59_999, []), (NOW + 60_000, [over])):
        world.now = now
        assert await world.outbox.deliver(send, lambda: world.now) == done
    assert world.sent == [over, other, over]


@pytest.mark.req("MARKET-22")
async def test_what_is_refused_is_kept_with_the_reason_and_not_sent_again(world: World) -> None:
    bad, good = sorted(ids.new_ulid() for _ in range(2))
    world.put(bad, title="a")
    world.code = "bad_request"
    await world.deliver()
    world.code = ""
    world.put(good, title="b")
    assert await world.deliver() == [good]
    (state,) = world.outbox.states(NOW)
    assert (state.code, state.message) == ("bad_request", "it is so")
    await world.outbox.remove(bad)
    assert world.codes() == {}
    assert [file.name for file in world.home.outbox.iterdir()] == [".lock"]


@pytest.mark.req("MARKET-22")
async def test_nothing_is_sent_after_its_time(world: World) -> None:
    one = world.put(title="a")
    world.now += 3_600_001
    assert await world.deliver() == []
    assert world.sent == []
    assert world.codes() == {one: "expired"}


@pytest.mark.req("MARKET-22")
async def test_what_was_altered_or_is_of_another_is_not_sent(world: World) -> None:
    altered, moved, torn = (world.put(title="a") for _ in range(3))
    folder = world.home.outbox
    file = folder / f"{altered}.json"
    file.write_text(file.read_text().replace('"a"', '"b"'))
    other = ids.new_ulid()
    (folder / f"{moved}.json").rename(folder / f"{other}.json")
    (folder / f"{torn}.json").write_text(json.dumps({"id": torn}))
    assert await world.deliver() == []
    assert world.sent == []
    codes = {altered: "invalid_signature", other: "invalid_signature", torn: "bad_request"}
    assert world.codes() == codes


@pytest.mark.req("MARKET-22")
async def test_a_client_id_stands_for_one_call(world: World) -> None:
    one = world.put(title="a")
    assert world.put(one, title="a") == one
    for other in ({"title": "b"}, {"title": "a", "capability": "market.update@1.0"}):
        with pytest.raises(HearthNetError, match="waits for something else"):
            world.put(one, **other)
    with pytest.raises(HearthNetError, match="client_id"):
        world.put("no ulid", title="b")
    (state,) = world.outbox.states(NOW)
    assert (state.call.id, state.call.capability, state.call.body["input"]["title"]) == (one, POST, "a")
    assert await world.deliver() == world.sent == [one]


@pytest.mark.req("MARKET-22")
async def test_what_is_being_sent_is_not_withdrawn_and_is_sent_by_one(world: World) -> None:
    one = world.put(title="a")
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(_capability: str, _body: dict[str, Any]) -> None:
        began.set()
        await go_on.wait()

    sending = asyncio.create_task(world.outbox.deliver(slowly, lambda: NOW))
    await asyncio.wait_for(began.wait(), 20)
    assert await Outbox(world.home, world.identity).deliver(world.send, lambda: NOW) == []
    withdrawing = asyncio.create_task(world.outbox.remove(one))
    await asyncio.sleep(0)
    go_on.set()
    assert await asyncio.wait_for(sending, 20) == [one]
    with pytest.raises(HearthNetError, match="it was sent, or withdrawn"):
        await asyncio.wait_for(withdrawing, 20)
    with pytest.raises(HearthNetError, match="no call"):
        await world.outbox.remove("../../device")
