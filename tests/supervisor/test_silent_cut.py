"""Two homes whose link falls silent without being closed: whoever waits is told within seconds.

See: docs/operations.md#links-between-homes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from hearthnet import Call, Reply, Stream, capability
from hearthnet.bus.bus import Bus
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.supervisor.nats.leaf_links import Upstream
from tests.helpers.probe import CHAT, CHAT_BODY, POST, QUERY, ProbeService, post, query
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.tcp_proxy import TcpProxy, tcp_proxy
from tests.helpers.waiting import wait_for
from tests.supervisor.houses import House, Street
from tests.supervisor.test_links import ask, hosting, link_is_there

pytestmark = pytest.mark.asyncio
NOTICED_SECONDS = 25.0
"""12 to 20 s until a server gives the link up, two until two probes are missed, more on a busy machine."""
PATIENCE_SECONDS = 60.0


@dataclass
class Cut:
    """The home that is called, the one that calls, and the link between them."""

    founder: House
    bob: House
    link: TcpProxy
    at_bob: Bus
    pids: tuple[int, ...]

    @property
    def far(self) -> str:
        """The id of the home that is called."""
        return self.founder.identity.node_id


@pytest_asyncio.fixture
async def cut(tmp_path: Path) -> AsyncIterator[Cut]:
    """Both homes with their real servers, as they are configured for everybody."""
    street = Street.build(tmp_path, "bob")
    async with street.open("founder") as founder:
        leaf = f"nats://127.0.0.1:{founder.server.state.leaf_port}"
        async with tcp_proxy(leaf) as link:
            way = Upstream(link.url.removeprefix("nats://"))
            async with (
                street.open("bob", upstream=way) as bob,
                await Bus.join(bob.home, bob.url, "b") as at_bob,
            ):
                await wait_for(lambda: link_is_there(bob), what="the link")
                pids = founder.server.pid, bob.server.pid
                yield Cut(founder, bob, link, at_bob, pids)


class Slow(ProbeService):
    """Posts when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.finish = asyncio.Event(), asyncio.Event()

    @capability(POST, event_sourced=True)
    async def post(self, call: Call[Any, Any]) -> Reply:
        """As the probe does, later."""
        self.began.set()
        try:
            await self.finish.wait()
        except asyncio.CancelledError:
            self.stopped.append(call.id)
            raise
        return await super().post(call)


async def hangs(call: Call[Any, Any]) -> None:
    await asyncio.Event().wait()


async def begins(call: Call[Any, Any], stream: Stream) -> None:
    await stream.send("token", {"text": "one"})
    await asyncio.Event().wait()


async def reach(cut: Cut) -> None:
    async def reached() -> bool:
        with contextlib.suppress(HearthNetError):
            return await ask(cut.at_bob, cut.founder, 5) == cut.far
        return False

    await wait_for(reached, 60, "the other home to be reached")


@pytest.mark.req("GATHER-10", "GATHER-11")
async def test_calls_and_streams_end_and_their_places_are_given_back(cut: Cut) -> None:
    """Their own time would be a minute, and a stream's patience 15 s."""
    async with hosting(cut.founder) as far:
        await reach(cut)
        far.answer, far.talk = hangs, begins
        began = asyncio.Event()

        async def streamed() -> None:
            asked = cut.at_bob.stream(CHAT, CHAT_BODY, node=cut.far, timeout_seconds=PATIENCE_SECONDS)
            async with asked as stream:
                async for _ in stream:
                    began.set()

        earlier = len(far.calls)
        called = asyncio.create_task(ask(cut.at_bob, cut.founder, PATIENCE_SECONDS))
        streaming = asyncio.create_task(streamed())
        await began.wait()
        await wait_for(lambda: len(far.calls) == earlier + 2, what="both calls to be there")
        watch = Stopwatch(*cut.pids)
        with cut.link.silent():
            errors = await asyncio.gather(called, streaming, return_exceptions=True)
            ended = watch.seconds()
            await wait_for(lambda: len(far.stopped) == 2, what="the places to be given back")
            given_back = watch.seconds()
            assert await link_is_there(cut.bob) is False
    assert [getattr(error, "code", error) for error in errors] == ["partition", "partition"]
    assert ended < NOTICED_SECONDS
    assert given_back < NOTICED_SECONDS


@pytest.mark.req("GATHER-10")
async def test_a_call_goes_on_at_another_home_before_its_time_is_over(cut: Cut) -> None:
    """Without the answer of a process that lives it would last to its end."""
    async with hosting(cut.founder) as far:
        await reach(cut)
        far.answer = hangs
        earlier = len(far.calls)
        called = asyncio.create_task(cut.at_bob.call(QUERY, query(), timeout_seconds=60))
        await wait_for(lambda: len(far.calls) == earlier + 1, what="the call to be there")
        async with hosting(cut.bob):
            with cut.link.silent():
                assert (await called).provider == cut.bob.identity.node_id


@pytest.mark.req("GATHER-11")
async def test_an_effect_that_has_begun_is_left_to_end(cut: Cut) -> None:
    """Its caller is told that it may have happened; asked again, it gets the outcome."""
    far, body = Slow(), post(ids.new_ulid())
    async with hosting(cut.founder, far):
        await reach(cut)
        called = asyncio.create_task(cut.at_bob.call(POST, body, node=cut.far, timeout_seconds=40))
        await far.began.wait()
        with cut.link.silent():
            with pytest.raises(HearthNetError) as lost:
                await called
            assert lost.value.code in ("partition", "outcome_unknown")
            assert not far.stopped
            far.finish.set()
        await reach(cut)
        assert (await cut.at_bob.call(POST, body, node=cut.far)).output["lamport"] == 1


@pytest.mark.req("GATHER-12")
async def test_the_link_is_there_again_within_seconds(cut: Cut) -> None:
    async with hosting(cut.founder):
        await reach(cut)
        with cut.link.silent():
            await wait_for(lambda: "Stale Connection" in cut.bob.log, 60, "the silence to be noticed")
        watch = Stopwatch(*cut.pids)
        await reach(cut)
    assert watch.seconds() < 5
