"""Two homes with servers of their own, whose link is cut: each goes on, and they are equal soon after."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from hearthnet.bus.bus import Bus
from hearthnet.bus.session import gossip_frames
from hearthnet.bus.session.gossip_frames import LINKED
from hearthnet.service.community import heads_exchange
from hearthnet.supervisor.nats import streams
from hearthnet.supervisor.nats.leaf_links import Upstream
from hearthnet.supervisor.nats.server_config import ANY_PORT
from hearthnet_market import MarketService
from tests.helpers.mesh import Mesh
from tests.helpers.nats_server import NatsServer
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.tcp_proxy import TcpProxy, tcp_proxy
from tests.helpers.waiting import wait_for
from tests.services.market.stalls import Stall, until_shown
from tests.services.market.trade import found, post
from tests.supervisor.houses import House, Street, way_to

pytestmark = pytest.mark.asyncio
POSTS = 60


class Apart(NamedTuple):
    """Two linked homes, and what can cut the link."""

    founder: Stall
    bob: Stall
    proxy: TcpProxy


@asynccontextmanager
async def market_of(house: House) -> AsyncIterator[Stall]:
    """The market of a house with a server of its own."""
    market = MarketService()
    server = cast("NatsServer", house.server.state)  # of which only the address is asked for
    mesh = Mesh(house.home, house.home, server, house.identity, house.server._settings(ANY_PORT, ANY_PORT))
    async with await mesh.store() as store:
        await streams.ensure(store.js, house.home.jetstream)
    with mesh.published():
        async with mesh.hosting(market), await Bus.join(house.home, house.url, "test") as bus:

            async def announce() -> None:
                await gossip_frames.publish(bus.peer.sender, LINKED, b"{}")

            house.server.on_linked = announce  # as the supervisor does
            yield Stall(market, bus)


@asynccontextmanager
async def homes_apart(folder: Path) -> AsyncIterator[Apart]:
    """The founder and Bob, who links to the founder by way of a proxy."""
    street = Street.build(folder, "bob")
    async with AsyncExitStack() as stack:
        founder = await stack.enter_async_context(street.open("founder"))
        address = way_to(founder).address
        proxy = await stack.enter_async_context(tcp_proxy(f"nats://{address}"))
        way = Upstream(proxy.url.removeprefix("nats://"))
        bob = await stack.enter_async_context(street.open("bob", upstream=way))
        await wait_for(lambda: bob.server.state.upstream == "linked", 20, "the link")
        here = await stack.enter_async_context(market_of(founder))
        there = await stack.enter_async_context(market_of(bob))
        yield Apart(here, there, proxy)


@pytest.mark.req("COMMLOG-9", "MARKET-30", "MARKET-31")
async def test_homes_whose_link_was_cut_are_equal_within_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no round of announcements to wait for: the link itself is the occasion."""
    monkeypatch.setattr(heads_exchange, "ANNOUNCE_SECONDS", 1_000.0)
    async with homes_apart(tmp_path) as (founder, bob, proxy):
        await post(founder.bus, "before")
        await until_shown(bob, {"before"})
        proxy.cut()
        await wait_for(lambda: _is_alone(bob), 20, "the link to be gone")
        await _post_many(founder)
        await _post_many(bob)
        assert await found(bob.bus, "before") == ["before"]
        assert len(await bob.shown()) == POSTS + 1
        healing = Stopwatch()
        proxy.heal()
        for one in (founder, bob):
            await wait_for(lambda: _count(one), 30, "all posts at both")  # noqa: B023
        assert healing.seconds() < 10
        assert founder.market._topic._held.digest() == bob.market._topic._held.digest()


async def _post_many(at: Stall) -> None:
    # Few at once: a call waits for its turn no longer than its own time.
    for first in range(0, POSTS, 10):
        await asyncio.gather(*(post(at.bus, f"{at.bus.peer.node_id} {first + more}") for more in range(10)))


async def _is_alone(bob: Stall) -> bool:
    offers = await bob.bus.offers()
    return not [one for one in offers if one.node != bob.bus.peer.node_id]


async def _count(at: Stall) -> bool:
    return len(await at.shown()) == 2 * POSTS + 1
