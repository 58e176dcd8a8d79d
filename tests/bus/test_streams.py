"""Streams over a real server: order, window, cancel, errors, a provider or caller that goes away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hearthnet.errors import HearthNetError
from hearthnet.service import Call, Stream
from hearthnet.wire.stream import WINDOW
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT, CHAT_BODY, QUERY, ProbeService, query
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio


@pytest.mark.req("STREAM-1")
async def test_frames_come_in_order_and_end_with_done(mesh: Mesh) -> None:
    async with mesh.hosting(ProbeService()), await mesh.bus() as bus, bus.stream(CHAT, CHAT_BODY) as stream:
        frames = [frame async for frame in stream]
        assert stream.provider == mesh.identity.node_id
    assert [(frame.event, frame.seq) for frame in frames] == [
        ("token", 1),
        ("token", 2),
        ("token", 3),
        ("done", 4),
    ]
    assert frames[-1].data["stop_reason"] == "end"
    assert "ms" in frames[-1].data


@pytest.mark.req("STREAM-2")
async def test_a_slow_consumer_holds_the_provider_at_the_window(mesh: Mesh) -> None:
    service, sent = ProbeService(), 0

    async def talk(call: Call[Any, Any], stream: Stream) -> None:
        nonlocal sent
        for number in range(200):
            await stream.send("token", {"text": str(number)})
            sent += 1

    service.talk = talk
    async with mesh.hosting(service), await mesh.bus() as bus, bus.stream(CHAT, CHAT_BODY) as stream:
        await wait_for(lambda: sent == WINDOW, 2, "a full window")
        await bus.peer.link.settle()
        assert sent == WINDOW
        texts = [frame.data["text"] async for frame in stream if frame.event == "token"]
    assert texts == [str(number) for number in range(200)]


@pytest.mark.req("STREAM-3")
async def test_leaving_a_stream_stops_the_work_within_200_ms(mesh: Mesh) -> None:
    service = ProbeService()
    clock = asyncio.get_running_loop().time

    async def forever(call: Call[Any, Any], stream: Stream) -> None:
        await stream.send("token", {"text": "first"})
        await asyncio.Event().wait()

    service.talk = forever
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        async with bus.stream(CHAT, CHAT_BODY) as stream:
            assert (await anext(stream)).data["text"] == "first"
            left = clock()
        await wait_for(lambda: service.stopped, 2, "the handler to be stopped")
        assert clock() - left < 0.2
        await wait_for(lambda: host.in_flight == 0, 1, "its place to be free")


@pytest.mark.req("STREAM-4")
async def test_an_error_ends_the_stream_once(mesh: Mesh) -> None:
    service = ProbeService()

    async def fail(call: Call[Any, Any], stream: Stream) -> None:
        await stream.send("token", {"text": "so far"})
        raise HearthNetError("rate_limited", "later", retry_after_ms=5)

    service.talk = fail
    async with mesh.hosting(service), await mesh.bus() as bus, bus.stream(CHAT, CHAT_BODY) as stream:
        assert (await anext(stream)).event == "token"
        with pytest.raises(HearthNetError) as caught:
            await anext(stream)
        assert (caught.value.code, caught.value.retry_after_ms) == ("rate_limited", 5)
        assert [frame async for frame in stream] == []


@pytest.mark.req("STREAM-4")
async def test_a_frame_outside_the_contract_ends_the_stream(mesh: Mesh) -> None:
    service = ProbeService()

    async def talk(call: Call[Any, Any], stream: Stream) -> None:
        await stream.send("token", {"text": 7})

    service.talk = talk
    async with mesh.hosting(service), await mesh.bus() as bus, bus.stream(CHAT, CHAT_BODY) as stream:
        with pytest.raises(HearthNetError) as caught:
            await anext(stream)
    assert "/text" in caught.value.message


@pytest.mark.req("STREAM-5")
async def test_a_caller_that_wants_one_reply_gets_the_whole(mesh: Mesh) -> None:
    async with mesh.hosting(ProbeService()), await mesh.bus() as bus:
        reply = await bus.call(CHAT, CHAT_BODY)
    assert reply.output["message"]["content"] == "done"
    assert reply.meta["model"] == "probe"


@pytest.mark.req("STREAM-6")
async def test_the_caller_can_speak_into_the_stream(mesh: Mesh) -> None:
    service = ProbeService()

    async def echo(call: Call[Any, Any], stream: Stream) -> None:
        await stream.send("token", {"text": "ready"})
        heard = await stream.receive()
        await stream.progress("heard", 1, 1)
        await stream.send("token", {"text": heard["text"]})

    service.talk = echo
    async with mesh.hosting(service), await mesh.bus() as bus, bus.stream(CHAT, CHAT_BODY) as stream:
        await anext(stream)
        await stream.send_input({"text": "from the caller"})
        rest = [frame async for frame in stream]
    assert [frame.event for frame in rest] == ["progress", "token", "done"]
    assert rest[1].data["text"] == "from the caller"


@pytest.mark.req("STREAM-7")
async def test_a_process_that_dies_in_mid_stream_is_noticed(mesh: Mesh) -> None:
    service = ProbeService()

    async def talk(call: Call[Any, Any], stream: Stream) -> None:
        await stream.send("token", {"text": "first"})
        await asyncio.Event().wait()

    service.talk = talk
    async with mesh.hosting(service), await mesh.bus() as bus, bus.stream(CHAT, CHAT_BODY) as stream:
        await anext(stream)
        mesh.restart_server()
        with pytest.raises(HearthNetError) as caught:
            await anext(stream)
    assert caught.value.code == "partition"


@pytest.mark.req("STREAM-8")
async def test_a_stream_is_opened_at_a_process_with_a_free_place(mesh: Mesh) -> None:
    full, free = ProbeService(places=0), ProbeService()
    full.places = 1

    async def forever(call: Call[Any, Any], stream: Stream) -> None:
        await stream.send("token", {"text": "busy"})
        await asyncio.Event().wait()

    full.talk = forever
    async with await mesh.bus() as bus, mesh.hosting(full), bus.stream(CHAT, CHAT_BODY) as first:
        await anext(first)
        async with mesh.hosting(free):
            for _ in range(6):
                async with bus.stream(CHAT, CHAT_BODY) as stream:
                    assert [frame.event async for frame in stream][-1] == "done"
    assert len(free.calls) == 6


@pytest.mark.req("STREAM-9")
async def test_the_deadline_ends_a_stream(mesh: Mesh) -> None:
    service = ProbeService()

    async def forever(call: Call[Any, Any], stream: Stream) -> None:
        await asyncio.Event().wait()

    service.talk = forever
    async with mesh.hosting(service), await mesh.bus() as bus:
        with pytest.raises(HearthNetError) as caught:
            async with bus.stream(CHAT, CHAT_BODY, timeout_seconds=0.2) as stream:
                await anext(stream)
    assert caught.value.code == "timeout"


async def test_what_does_not_stream_cannot_be_streamed(mesh: Mesh) -> None:
    async with await mesh.bus() as bus:
        with pytest.raises(HearthNetError, match="call it"):
            bus.stream(QUERY, query())
