"""The two connections of a service process: which frames arrive on which, and what follows from a loss."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from hearthnet.bus.bus import Bus
from hearthnet.bus.session.frame_budget import FrameBudget
from hearthnet.core import ids
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.nats.client import NatsClient
from hearthnet.nats.split_client import SplitClient
from hearthnet.protocol import subjects
from tests.helpers.mesh import Mesh, config_of
from tests.helpers.offers import offered
from tests.helpers.probe import CHAT, CHAT_BODY, QUERY, ProbeService, query
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio


@pytest.fixture
def split(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> Mesh:
    """A mesh whose server knows the second login, and whose hosted services use it."""
    mesh.settings = replace(mesh.settings, peer_login=mesh.identity.peer_login().public)
    mesh.server.reload(config_of(mesh.settings, mesh.guest))
    join = Bus.join.__func__  # type: ignore[attr-defined]

    async def joined(cls: type[Bus], /, home: object, url: str, name: str, **more: object) -> Bus:
        bus: Bus = await join(cls, home, url, name, **{"is_split": name == "probe", **more})
        return bus

    monkeypatch.setattr(Bus, "join", classmethod(joined))
    return mesh


@pytest.mark.req("RATE-4")
async def test_frames_of_other_nodes_arrive_on_a_connection_of_their_own(split: Mesh) -> None:
    heard: list[tuple[str, str]] = []
    async with (
        split.hosting(ProbeService()) as host,
        await split.bus() as own,
        await split.guest_bus() as guest,
    ):
        link = host.peer.link
        assert isinstance(link, SplitClient)
        pattern = subjects.calls_to(host.peer.node_id, host.peer.instance)

        def on_own(subject: str, data: bytes, absent: bool) -> None:
            heard.append(("own", subject.split(".")[2]))

        def on_others(subject: str, data: bytes, absent: bool) -> None:
            heard.append(("others", subject.split(".")[2]))

        await NatsClient.subscribe(link, pattern.replace("*", link._token, 1), on_own)
        await link._others.subscribe(pattern, on_others)
        await link.flush_subscriptions()
        for bus in (own, guest):
            assert (await bus.call(QUERY, query())).provider == host.peer.node_id
            async with bus.stream(CHAT, CHAT_BODY) as stream:
                assert [frame.event async for frame in stream][-1] == "done"
        tokens = [ids.token_form(bus.peer.node_id) for bus in (own, guest)]
        assert heard == [("own", tokens[0])] * 2 + [("others", tokens[1])] * 2


@pytest.mark.req("RATE-4")
@pytest.mark.parametrize("which", ["own", "others"])
async def test_either_connection_comes_back_with_its_subscriptions(split: Mesh, which: str) -> None:
    lost: list[str] = []
    async with (
        split.hosting(ProbeService()) as host,
        await split.bus() as own,
        await split.guest_bus() as guest,
    ):
        link = host.peer.link
        assert isinstance(link, SplitClient)
        await offered(guest, QUERY)
        await offered(own, QUERY)
        link.on_lost(lambda: lost.append(which))
        broken = link if which == "own" else link._others
        assert broken._connection is not None
        broken._connection.abort()
        await wait_for(lambda: lost, what="the loss to be noticed")
        async with asyncio.timeout(20):
            await link.connected()
            # Otherwise a call can reach the server before the subscriptions do, and nobody is there.
            await link.flush_subscriptions()
            for bus in (own, guest):
                assert (await bus.call(QUERY, query())).provider == host.peer.node_id
        assert link.is_connected


@pytest.mark.req("RATE-4")
async def test_who_waits_is_told_that_the_login_is_refused_for_good(split: Mesh) -> None:
    link = await SplitClient.join(split.server.url, split.identity, "one")
    assert isinstance(link, SplitClient)
    link._others._connected.clear()
    waiting = asyncio.create_task(link.connected())
    await asyncio.sleep(0)
    link._end()
    with pytest.raises(HearthNetError, match="was closed"):
        await asyncio.wait_for(waiting, 5)
    await link.close()


@pytest.mark.req("RATE-4")
async def test_a_server_without_the_second_login_is_used_with_one(mesh: Mesh) -> None:
    link = await SplitClient.join(mesh.server.url, mesh.identity, "one")
    assert type(link) is NatsClient
    await link.close()


@pytest.mark.req("RATE-4")
async def test_a_connection_that_is_closed_ends_with_the_other_one(split: Mesh) -> None:
    link = await SplitClient.join(split.server.url, split.identity, "two")
    assert isinstance(link, SplitClient)
    await link.close()
    await asyncio.wait_for(link.closed(), 5)
    assert not link.is_connected
    assert link._others._connection is None


@pytest.mark.req("RATE-4", "ATTACK-40")
async def test_what_waits_of_others_does_not_stand_before_the_own_nodes_frames(
    split: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, read, admits = 60_000, 0, FrameBudget.admits

    def counted(self: FrameBudget, subject: str, size: int) -> bool:
        nonlocal read
        read += size == len(flood)
        return admits(self, subject, size)

    flood = b"x" * 503
    monkeypatch.setattr(FrameBudget, "admits", counted)
    async with (
        split.hosting(ProbeService()) as host,
        await split.bus() as own,
        await split.guest_bus() as guest,
    ):
        await own.call(QUERY, query())
        link = host.peer.link
        assert isinstance(link, SplitClient)
        assert link._others._connection is not None
        transport = link._others._connection._transport
        assert transport is not None
        transport.pause_reading()
        subject = subjects.call(
            guest.peer.node_id, host.peer.node_id, host.peer.instance, parse_capability(QUERY)
        )
        for _ in range(count):
            await guest.peer.link.publish(subject, flood)
        await guest.peer.link.flush_subscriptions()
        transport.resume_reading()
        await own.call(QUERY, query())
        assert read < count / 2
        await wait_for(lambda: read == count, what="the others to be read, too")
