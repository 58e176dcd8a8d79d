"""Processes that have just started: services are waited for, and programs learn what they missed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest

from hearthnet.bus.bus import Bus
from hearthnet.bus.session import gossip_frames
from hearthnet.bus.session.gossip_frames import HEADS
from hearthnet.core.errors import HearthNetError
from hearthnet.core.node_state import ServiceState, starting_services
from hearthnet.core.times import now_ms
from hearthnet.trust.keys import Identity
from tests.helpers.members import take_in
from tests.helpers.mesh import Mesh, write_roster
from tests.helpers.probe import CHAT, CHAT_BODY, QUERY, ProbeService, query
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio


@pytest.fixture
def starting(mesh: Mesh) -> Iterator[Mesh]:
    """The mesh as a running node whose service `probe` crashed a moment ago."""
    with mesh.published(ServiceState("probe", None, "waiting", 1, "ended", (), 0)):
        yield mesh


@pytest.mark.req("BUS-21")
async def test_a_call_waits_for_a_service_that_is_starting(starting: Mesh) -> None:
    finds: Counter[str] = Counter()

    def count(subject: str, data: bytes, absent: bool) -> None:
        finds[subject.split(".", 3)[3]] += 1

    async with await starting.bus() as bus, await starting.guest_bus() as listener:
        await listener.peer.link.subscribe("hn.find.>", count)
        await listener.peer.link.flush_subscriptions()
        asking = asyncio.create_task(bus.call(QUERY, query()))
        talking = asyncio.create_task(_events(bus))
        whole = asyncio.create_task(bus.call(CHAT, CHAT_BODY))
        await wait_for(
            lambda: finds["rag.query.v1"] > 1 and finds["llm.chat.v2"] > 1, what="it to be looked for again"
        )
        assert not any(task.done() for task in (asking, talking, whole))
        async with starting.hosting(ProbeService()):
            assert (await asking).output
            assert (await talking)[-1] == "done"
            assert (await whole).output["message"]["content"] == "done"


@pytest.mark.req("BUS-21")
async def test_one_that_became_ready_since_it_was_asked_for_is_waited_for(mesh: Mesh) -> None:
    """What it offers to its own node is not announced, and a find may take longer than a moment."""
    asked = now_ms() - 2_500
    with mesh.published(
        ServiceState("before", 1, "ready", 0, None, (), asked - 10_000),
        ServiceState("since", 1, "ready", 0, None, (), asked + 100),
    ):
        assert starting_services(mesh.home, asked) == ["since"]
        assert starting_services(mesh.home) == []


async def _events(bus: Bus) -> list[str]:
    async with bus.stream(CHAT, CHAT_BODY) as stream:
        return [frame.event async for frame in stream]


@pytest.mark.req("BUS-21")
async def test_who_waited_long_enough_is_told_to_try_again(starting: Mesh) -> None:
    async with await starting.bus() as bus:
        with pytest.raises(HearthNetError) as caught:
            await bus.call(QUERY, query(), timeout_seconds=2)
        assert "probe is starting" in caught.value.message
        with pytest.raises(HearthNetError, match="probe is starting") as stream_error:
            async with bus.stream(CHAT, CHAT_BODY, timeout_seconds=2):
                pass
    for error in (caught.value, stream_error.value):
        assert (error.code, error.rule) == ("partition", "provider_starting")


@pytest.mark.req("HOMES-8")
async def test_a_program_learns_what_was_announced_as_it_connected(mesh: Mesh) -> None:
    newcomer = Identity.generate()
    with mesh.published():
        program = await Bus.connect(mesh.home, "program")
    async with program:
        # Announced when the program had read the file and did not follow yet.
        write_roster(take_in(program.peer.roster, mesh.identity, newcomer), mesh.home)
        async with await mesh.bus() as service:
            heads = service.peer.membership.heads()
            assert program.peer.membership.heads().is_behind(heads)
            await gossip_frames.publish(service.peer.sender, HEADS, msgspec.json.encode(heads))
            is_member = program.peer.membership.is_member
            await wait_for(lambda: is_member(newcomer.node_id), what="the newcomer")
