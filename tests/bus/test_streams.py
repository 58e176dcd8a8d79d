"""Streams over a real server: order, window, cancel, errors, a provider or caller that goes away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hearthnet import Call, Stream
from hearthnet.bus.calls import streaming
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol import stream as stream_machine
from hearthnet.protocol.stream import WINDOW, Outgoing
from tests.bus import failing_worker
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT, CHAT_BODY, QUERY, ProbeService, query
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import DEADLINE_SECONDS, wait_for

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
        await wait_for(lambda: sent == WINDOW, what="a full window")
        await bus.peer.link.flush_subscriptions()
        assert sent == WINDOW
        texts = [frame.data["text"] async for frame in stream if frame.event == "token"]
    assert texts == [str(number) for number in range(200)]


@pytest.mark.req("STREAM-3")
async def test_leaving_a_stream_stops_the_work_within_200_ms(mesh: Mesh) -> None:
    service = ProbeService()

    async def forever(call: Call[Any, Any], stream: Stream) -> None:
        await stream.send("token", {"text": "first"})
        await asyncio.Event().wait()

    service.talk = forever
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        async with bus.stream(CHAT, CHAT_BODY) as stream:
            assert (await anext(stream)).data["text"] == "first"
            watch = Stopwatch(mesh.server.process.pid)
        await wait_for(lambda: service.stopped, what="the handler to be stopped")
        assert watch.seconds() < 0.2
        await wait_for(lambda: host.in_flight == 0, what="its place to be free")


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
    service, refused = ProbeService(), list[str]()

    async def talk(call: Call[Any, Any], stream: Stream) -> None:
        await stream.send("token", {"text": "so far"})
        try:
            await stream.send("token", {"text": 7})
        except Exception as error:
            refused.append(str(error))
            raise

    service.talk = talk
    async with mesh.hosting(service), await mesh.bus() as bus, bus.stream(CHAT, CHAT_BODY) as stream:
        assert (await anext(stream)).data == {"text": "so far"}
        with pytest.raises(HearthNetError):
            await anext(stream)
        assert [frame async for frame in stream] == []
    (reason,) = refused
    assert '/text: 7 is not of type "string"' in reason


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
async def test_a_server_that_dies_in_mid_stream_is_noticed(mesh: Mesh) -> None:
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
    assert (caught.value.code, caught.value.rule) == ("partition", "connection_lost")


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
            async with bus.stream(CHAT, CHAT_BODY, timeout_seconds=2) as stream:
                await anext(stream)
        await wait_for(lambda: service.stopped, what="the handler to be stopped")
    assert caught.value.code == "timeout"


async def test_what_does_not_stream_cannot_be_streamed(mesh: Mesh) -> None:
    async with await mesh.bus() as bus:
        with pytest.raises(HearthNetError, match="call it"):
            bus.stream(QUERY, query())


@pytest.mark.req("STREAM-3")
async def test_a_stream_that_ends_on_the_callers_side_stops_the_work_too(mesh: Mesh) -> None:
    """A frame was lost: the provider, which knows nothing of it, is told to stop."""
    service = ProbeService()

    async def talk(call: Call[Any, Any], stream: Stream) -> None:
        await stream.send("token", {"text": "first"})
        stream._outgoing.next_seq("token")
        await stream.send("token", {"text": "after a gap"})
        await asyncio.Event().wait()

    service.talk = talk
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        async with bus.stream(CHAT, CHAT_BODY) as stream:
            await anext(stream)
            with pytest.raises(HearthNetError, match="lost a frame"):
                await anext(stream)
        await wait_for(lambda: host.in_flight == 0, what="the work to stop")


@pytest.mark.req("STREAM-2")
async def test_a_provider_that_ignores_the_window_fills_no_memory(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, said = ProbeService(), asyncio.Event()
    monkeypatch.setattr(Outgoing, "may_send", True)

    async def talk(call: Call[Any, Any], stream: Stream) -> None:
        for number in range(500):
            await stream.send("token", {"text": str(number)})
        said.set()
        await asyncio.Event().wait()

    service.talk = talk
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        async with bus.stream(CHAT, CHAT_BODY) as stream:
            await asyncio.wait_for(said.wait(), DEADLINE_SECONDS)
            await host.peer.link.flush_subscriptions()
            await bus.peer.link.flush_subscriptions()
            # Twice the window, and the error: the other frames were not kept.
            assert len(stream._received) == 2 * WINDOW + 1
            read = [(await anext(stream)).data["text"] for _ in range(2 * WINDOW)]
            assert read == [str(number) for number in range(2 * WINDOW)]
            with pytest.raises(HearthNetError, match="ignores the window"):
                await anext(stream)
        await wait_for(lambda: host.in_flight == 0, what="the work to stop")


@pytest.mark.req("STREAM-11")
async def test_signs_of_life_go_on_at_the_next_provider_and_outlast_a_failure(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "KEEPALIVE_MS", 10)
    service, heard = ProbeService(), []
    acknowledge = Outgoing.acknowledge

    def note(outgoing: Outgoing, upto: int, now_ms: int) -> None:
        heard.append(upto)
        acknowledge(outgoing, upto, now_ms)

    async def talk(call: Call[Any, Any], stream: Stream) -> None:
        if len(service.calls) == 1:
            raise HearthNetError("capacity_exceeded", "the next one, please")
        await wait_for(lambda: len(heard) >= 3, what="signs of life")

    monkeypatch.setattr(Outgoing, "acknowledge", note)
    service.talk = talk
    async with mesh.hosting(service), mesh.hosting(service), await mesh.bus() as bus:
        async with bus.stream(CHAT, CHAT_BODY) as stream:
            assert [frame.event async for frame in stream] == ["done"]
        service.talk = _silent
        async with bus.stream(CHAT, CHAT_BODY) as stream:
            await bus.peer.link.close()
            with pytest.raises(HearthNetError) as caught:
                await anext(stream)
    assert (caught.value.code, caught.value.rule) == ("partition", "connection_lost")


async def _silent(call: Call[Any, Any], stream: Stream) -> None:
    await asyncio.Event().wait()


@pytest.mark.req("STREAM-11")
async def test_a_provider_that_has_gone_silent_is_given_up(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "KEEPALIVE_MS", 10)
    monkeypatch.setattr(stream_machine, "SILENCE_MS", 50)
    service = ProbeService()
    service.talk = _silent
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        async with bus.stream(CHAT, CHAT_BODY) as stream:
            with pytest.raises(HearthNetError, match="gone silent"):
                await anext(stream)
        await wait_for(lambda: host.in_flight == 0, what="the work to stop")


@pytest.mark.req("STREAM-12", "STREAM-7")
async def test_a_process_that_vanishes_in_mid_stream_is_missed_within_seconds(mesh: Mesh) -> None:
    """Killed: no connection is closed in order, and no offer is withdrawn."""
    asked = {"params": {}, "input": {"messages": [{"role": "user", "content": "hold"}]}}
    async with (
        failing_worker.running(mesh) as [worker],
        await mesh.bus() as bus,
        bus.stream(CHAT, asked) as stream,
    ):
        assert (await anext(stream)).data["text"] == "first"
        await worker.kill()
        watch = Stopwatch(mesh.server.process.pid)
        with pytest.raises(HearthNetError) as caught:
            await anext(stream)
        took = watch.seconds()
    assert (caught.value.code, caught.value.rule) == ("partition", "provider_gone")
    assert took < 6
