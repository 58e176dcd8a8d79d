"""A post that a person approved for a run while the server is away, or as it goes: once, when it is back.

No outbox is needed for it: the run and the yes are on the disk of the home, and whoever goes on with the run
sends the post under the key that it had (docs/decisions/0125).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

from hearthnet import Call, Offer, Stream
from hearthnet.agent.persistence import jetstream_store
from hearthnet.agent.persistence.jetstream_store import StoredRuns
from hearthnet.agent.persistence.saved_runs import SavedRuns
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.tools.builtin import builtin_tools
from hearthnet.agent.tools.types import Approve
from hearthnet.bus.bus import Bus
from hearthnet.bus.store import Store
from hearthnet.core.errors import HearthNetError
from hearthnet.service.hosting.host import Host
from hearthnet_market import MarketService
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT_BODY, ProbeService
from tests.services.market.trade import listed

pytestmark = pytest.mark.asyncio
POST = {"category": "offer", "title": "Water filter", "body": "To lend."}


class _Model(ProbeService):
    """A model that wants to post, and is content with whatever comes of it."""

    def offers(self) -> list[Offer]:
        return [offer for offer in super().offers() if offer.capability.startswith("llm.")]


async def _talk(call: Call[Any, Any], stream: Stream) -> None:
    if call.body["input"]["messages"][-1]["role"] == "tool":
        await stream.send("token", {"text": "That is settled."})
    else:
        await stream.send("tool_call", {"id": "p", "name": "market_post", "arguments": POST})


class Home:
    """The node of a person whose run waits for a yes."""

    def __init__(self, mesh: Mesh, bus: Bus, store: Store, *services: Host) -> None:
        self.mesh = mesh
        self._services = services
        self.bus = bus
        self.store = store
        self._runs = StoredRuns(store, mesh.identity)
        self.run = ""

    def executor(self) -> ToolExecutor:
        return ToolExecutor(self.bus, builtin_tools(["market_post"]), store=self._runs)

    async def ask(self) -> None:
        """The model wants to post, and nobody is there to say yes."""
        answer = await self.executor().run_chat_with_tools(CHAT_BODY)
        assert answer["requires_follow_up"]
        self.run = answer["run"]

    async def approve(self) -> None:
        """A person says yes, to the same call as often as this is asked."""
        desk = SavedRuns(self._runs, self.mesh.identity, self.bus.peer.community)
        assert (await desk.decide(self.run, "p", Approve(), via="test")).signed.word == "approved"

    async def in_vain(self, work: Awaitable[Any]) -> None:
        """Work that needs the store while that is away, which is given up on soon."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jetstream_store, "READ_SECONDS", 0.5)
            with pytest.raises(HearthNetError) as caught:
                await work
        assert caught.value.code == "partition"

    async def back(self) -> None:
        """The server is there again, and so is everybody at it."""
        self.mesh.server = self.mesh.server.again()
        await self.store.link.connected()
        for peer in (self.bus.peer, *(service.peer for service in self._services)):
            await peer.link.connected()
            await peer.link.flush_subscriptions()

    async def go_on(self) -> None:
        """The run goes on to its end."""
        assert (await self.executor().resume(self.run))["content"] == "That is settled."

    async def posted_once(self) -> None:
        """The run has ended, and its post is on the market once."""
        with pytest.raises(HearthNetError, match="has ended"):
            await self.executor().resume(self.run)
        assert [one["title"] for one in (await listed(self.bus)).values()] == [POST["title"]]
        assert (await self.store.js.stream_info("MARKET")).state.messages == 1


@contextlib.asynccontextmanager
async def _home(mesh: Mesh) -> AsyncIterator[Home]:
    model = _Model()
    model.talk = _talk
    async with (
        await mesh.store() as store,
        await mesh.bus() as bus,
        mesh.hosting(model) as models,
        mesh.hosting(MarketService()) as market,
    ):
        home = Home(mesh, bus, store, models, market)
        await home.ask()
        yield home


@pytest.mark.req("MARKET-24", "RUN-5", "PAIN-4")
async def test_what_was_approved_before_the_server_went_is_posted_once_when_it_is_back(mesh: Mesh) -> None:
    async with _home(mesh) as home:
        await home.approve()
        mesh.server.kill()
        await home.in_vain(home.executor().resume(home.run))
        await home.back()
        await home.go_on()
        await home.posted_once()


@pytest.mark.req("MARKET-24", "RUN-5", "PAIN-4")
async def test_a_yes_that_the_server_did_not_hear_is_said_again_and_posts_once(mesh: Mesh) -> None:
    async with _home(mesh) as home:
        mesh.server.kill()
        await home.in_vain(home.approve())
        await home.back()
        assert await listed(home.bus) == {}
        await home.approve()
        await home.approve()
        await home.go_on()
        await home.posted_once()


@pytest.mark.req("MARKET-24", "RUN-5", "PAIN-1")
async def test_a_server_that_dies_as_the_approved_post_reaches_the_log_has_it_once(mesh: Mesh) -> None:
    async with _home(mesh) as home:
        await home.approve()
        gone = asyncio.Event()

        def kill() -> None:
            if not gone.is_set():
                mesh.server.kill()
                gone.set()

        await home.store.link.subscribe("mk.post.>", kill)
        await home.store.link.client.flush()
        driving = asyncio.create_task(home.executor().resume(home.run))
        await asyncio.wait_for(gone.wait(), 60)
        await home.back()
        await asyncio.wait({driving}, timeout=60)
        assert driving.done()
        if driving.exception() is not None:  # else the driver has outlived the server's death
            await home.go_on()
        await home.posted_once()
