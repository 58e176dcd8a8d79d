"""How many homes announce what others have announced already: real connections to a real server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from hearthnet.bus.session import gossip_frames, keyring
from hearthnet.bus.session.gossip_frames import SetDigest
from hearthnet.bus.session.session import Session
from hearthnet.core.home import Home
from hearthnet.nats.client import NatsClient
from hearthnet.protocol import subjects
from hearthnet.service.community import heads_exchange
from hearthnet.service.community.heads_exchange import HeadsExchange
from tests.helpers import large_community
from tests.helpers.mesh import Mesh, start_mesh
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
HEADS = "community.heads.test"
EQUAL = SetDigest(5, "same")
Heads = HeadsExchange[SetDigest]


@contextlib.asynccontextmanager
async def homes(folder: Path, count: int) -> AsyncIterator[tuple[list[Heads], list[str]]]:
    """The exchanges of `count` homes with equal heads, and the subjects that one of them reads."""
    mesh = await start_mesh(folder, stores=False)
    held = keyring.load_roster(mesh.home.roster, mesh.identity.node_id)
    members = large_community.members(count)
    held = large_community.with_members(held, mesh.identity, members)
    mesh.let_in(held)
    place = Home.resolve(folder / "peers")
    place.run.mkdir(parents=True)
    heard: list[str] = []
    async with contextlib.AsyncExitStack() as leaving:
        leaving.callback(mesh.server.stop)
        exchanges = []
        for one in members:
            link = await NatsClient.connect(mesh.server.url, one.login(), "test")
            session = Session(one, held, link, place)
            leaving.push_async_callback(session.close)
            exchange = Heads(
                session,
                HEADS,
                session.membership.reader,
                msgspec.json.Decoder(SetDigest),
                lambda: EQUAL,
                _nothing,
            )
            leaving.push_async_callback(exchange.close)
            await exchange.open()
            exchanges.append(exchange)
        await link.subscribe(subjects.events_of(HEADS), lambda subject, *_: heard.append(subject))
        await link.flush_subscriptions()
        yield exchanges, heard


async def _nothing(node: str) -> bool:
    return False


async def _wave(folder: Path, count: int) -> int:
    """How many of `count` homes announce a change that comes to all of them."""
    async with homes(folder, count) as (exchanges, heard):
        await _quiet(exchanges)
        heard.clear()
        for exchange in exchanges:
            exchange.announce()
        await _quiet(exchanges)
        return len(heard)


async def _quiet(exchanges: list[Heads]) -> None:
    """Wait until each has announced, or decided not to."""
    await wait_for(lambda: not any(one._announcing.is_set() for one in exchanges), 20, "all announcements")
    await asyncio.gather(*(one._peer.link.flush_subscriptions() for one in exchanges))


@pytest.mark.req("SCALE-2")
async def test_announcements_of_a_change_do_not_grow_with_the_roster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads_exchange, "ANNOUNCE_SECONDS", 10_000.0)
    monkeypatch.setattr(heads_exchange, "_FEW", 0)
    monkeypatch.setattr(heads_exchange, "_SPREAD_SECONDS", 0.1)
    few, many = await _wave(tmp_path / "few", 8), await _wave(tmp_path / "many", 40)
    assert 3 <= few <= 8
    assert 3 <= many <= 20, "the first three, and those whose turn came before these were read"


@pytest.mark.req("SCALE-2")
async def test_a_home_that_others_could_keep_silent_announces_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four announce at every occasion what the fifth holds, too: its turn comes after the longest silence."""
    monkeypatch.setattr(heads_exchange, "ANNOUNCE_SECONDS", 3.0)
    async with homes(tmp_path, 5) as (exchanges, heard):
        last = exchanges[-1]
        await _quiet(exchanges)
        heard.clear()
        last._silent_until = last._clock() + 1.0
        own = subjects.event(last._peer.node_id, HEADS)

        async def is_heard() -> bool:
            last._equals.update(f"liar {number}" for number in range(9))
            return own in heard

        await wait_for(is_heard, 20, "the silent one")


@pytest.mark.req("HOMES-11")
async def test_heads_are_announced_at_once_after_a_fetch(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads_exchange, "_LEAST_SECONDS", 3_600.0)
    theirs = SetDigest(9, "x")
    async with await mesh.guest_bus() as guest, await mesh.bus() as founder:
        ours = SetDigest(5, "m")
        announced = list[bytes]()

        async def fetch(node: str) -> bool:
            nonlocal ours
            ours = theirs
            return True

        exchange = HeadsExchange(
            guest.peer,
            HEADS,
            guest.peer.membership.reader,
            msgspec.json.Decoder(SetDigest),
            lambda: ours,
            fetch,
        )
        subject = subjects.event(guest.peer.node_id, HEADS)
        await founder.peer.link.subscribe(subject, lambda subject, data, absent: announced.append(data))
        await founder.peer.link.flush_subscriptions()
        await exchange.open()
        await guest.peer.link.flush_subscriptions()
        try:
            await gossip_frames.publish(founder.peer.sender, HEADS, msgspec.json.encode(theirs))
            await wait_for(lambda: announced, what="the heads after the fetch")
        finally:
            await exchange.close()


@pytest.mark.req("COMMLOG-14")
async def test_who_comes_soon_after_an_answer_has_one_later(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for the next round, up to 24 s."""
    monkeypatch.setattr(heads_exchange, "ANNOUNCE_SECONDS", 10_000.0)
    monkeypatch.setattr(heads_exchange, "_ANSWER_AGAIN_SECONDS", 2.0)
    announced = list[bytes]()
    async with await mesh.guest_bus() as guest, await mesh.bus() as founder:
        exchange = HeadsExchange(
            founder.peer,
            HEADS,
            founder.peer.membership.reader,
            msgspec.json.Decoder(SetDigest),
            lambda: SetDigest(9, "x"),
            _nothing,
        )
        own = subjects.event(founder.peer.node_id, HEADS)
        await guest.peer.link.subscribe(own, lambda subject, data, absent: announced.append(data))
        await guest.peer.link.flush_subscriptions()
        await exchange.open()
        await founder.peer.link.flush_subscriptions()
        try:
            await wait_for(lambda: announced, what="the announcement of the start")
            for number in range(2):
                announced.clear()
                behind = msgspec.json.encode(SetDigest(0, str(number)))
                await gossip_frames.publish(guest.peer.sender, HEADS, behind)
                await wait_for(lambda: announced, what="an answer")
        finally:
            await exchange.close()
