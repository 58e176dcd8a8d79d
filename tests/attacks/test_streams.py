"""A word about one stream that is led to another one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hearthnet import Call, Stream
from hearthnet.core import ids
from hearthnet.protocol import frame as frames
from hearthnet.protocol import subjects
from tests.attacks.attacker import Attacker
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT, CHAT_BODY, POST, QUERY, ProbeService, post, query
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio


@pytest.mark.req("ATTACK-6")
@pytest.mark.parametrize(("about", "stopped"), [("another", 0), ("this", 1)])
async def test_a_cancel_stops_the_stream_that_it_is_about(mesh: Mesh, about: str, stopped: int) -> None:
    service, go_on = ProbeService(), asyncio.Event()

    async def talk(call: Call[Any, Any], stream: Stream) -> None:
        await stream.send("token", {"text": "begun"})
        await go_on.wait()

    service.talk = talk
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        peer = bus.peer
        async with bus.stream(CHAT, CHAT_BODY) as stream:
            await anext(aiter(stream))
            running = service.calls[0].id
            stream_id = running if about == "this" else ids.new_ulid()
            to, instance = host.peer.node_id, host.peer.instance
            header = peer.sender.header(
                "cancel", ids.new_ulid(), to=to, to_instance=instance, stream=stream_id
            )
            subject = subjects.control(peer.node_id, to, instance, running)
            key = peer.sender.keys.to(to)
            await peer.link.publish(subject, frames.box(frames.plain(header, b"{}"), key))
            await wait_for(lambda: host.dropped or service.stopped, what="the frame to arrive")
            assert (host.dropped, len(service.stopped)) == (1 - stopped, stopped)
            go_on.set()


@pytest.mark.req("ADMIT-21")
@pytest.mark.parametrize("capability", [QUERY, POST])
async def test_stream_of_what_has_none_is_refused_and_not_run(mesh: Mesh, capability: str) -> None:
    """The handler ran before its answer was found to have no frame; an effect ended as outcome_unknown."""
    service = ProbeService()
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        mallory = Attacker(bus)
        view = await mallory.target(capability, host.peer.node_id)
        body = query() if capability == QUERY else post(ids.new_ulid())
        assert await mallory.call(view, capability, body, kind="open", signed=True) == "bad_request"
        assert service.calls == []
