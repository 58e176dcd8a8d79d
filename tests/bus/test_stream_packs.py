"""Frames of streams that leave in one turn of the loop travel in one message (docs/decisions/0062)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from hearthnet import Call, Stream
from hearthnet.bus.bus import Bus
from hearthnet.bus.calls import streaming
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol import batch
from hearthnet.protocol.frame import Frame
from hearthnet.protocol.header import Header
from hearthnet.protocol.stream import TERMINAL, WINDOW
from tests.helpers.mesh import Mesh
from tests.helpers.offers import offered
from tests.helpers.probe import CHAT, CHAT_BODY, ProbeService
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
STREAMS, FRAMES = 12, 60
Unpack = Callable[[Frame, Callable[[], None]], list[Frame]]


@pytest.fixture
def packs(monkeypatch: pytest.MonkeyPatch) -> list[list[Frame]]:
    """What came together, as it comes."""
    found: list[list[Frame]] = []
    unpack: Unpack = batch.answers

    def answers(frame: Frame, on_fault: Callable[[], None]) -> list[Frame]:
        found.append(unpack(frame, on_fault))
        return found[-1]

    monkeypatch.setattr(batch, "answers", answers)
    return found


async def _count(call: Call[Any, Any], stream: Stream) -> None:
    for number in range(FRAMES):
        await stream.send("token", {"text": str(number)})


async def _read(bus: Bus) -> list[str]:
    async with bus.stream(CHAT, CHAT_BODY) as stream:
        return [frame.data.get("text", frame.event) async for frame in stream]


@pytest.mark.req("STREAM-14")
async def test_frames_of_one_moment_travel_together_inside_their_windows(
    mesh: Mesh, packs: list[list[Frame]]
) -> None:
    service = ProbeService(places=2 * STREAMS)
    service.talk = _count
    async with mesh.hosting(service), await mesh.guest_bus() as bus:
        read = await asyncio.gather(*(_read(bus) for _ in range(STREAMS)))
        assert not bus.peer.replies._handlers
    assert read == [[*map(str, range(FRAMES)), "done"]] * STREAMS
    packed = [frame for frames in packs for frame in frames]
    assert len(packed) > 0.9 * STREAMS * FRAMES
    assert len(packs) < len(packed) / 4
    for frames in packs:
        assert len(frames) <= batch.MOST
        each = Counter(frame.header.id for frame in frames if frame.header.event not in TERMINAL)
        assert max(each.values(), default=0) <= WINDOW


@pytest.mark.req("STREAM-14")
async def test_who_does_not_take_packs_gets_frames_alone(
    mesh: Mesh, packs: list[list[Frame]], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = ProbeService(places=2 * STREAMS)
    service.talk = _count
    async with mesh.hosting(service), await mesh.guest_bus() as bus:
        header = bus.peer.sender.header

        def without(*given: Any, **fields: Any) -> Header:
            return header(*given, **{**fields, "packs": False})

        monkeypatch.setattr(bus.peer.sender, "header", without)
        read = await asyncio.gather(*(_read(bus) for _ in range(STREAMS)))
    assert read == [[*map(str, range(FRAMES)), "done"]] * STREAMS
    assert packs == []


@pytest.mark.req("STREAM-14")
async def test_what_is_too_large_for_a_pack_keeps_its_place(mesh: Mesh) -> None:
    service = ProbeService()
    texts = [str(number) if number % 3 else str(number) * 20_000 for number in range(30)]

    async def talk(call: Call[Any, Any], stream: Stream) -> None:
        for text in texts:
            await stream.send("token", {"text": text})
        with pytest.raises(HearthNetError) as caught:
            await stream.send("token", {"text": "x" * 9_000_000})
        assert caught.value.code == "payload_too_large"
        await stream.send("token", {"text": "last"})

    service.talk = talk
    async with mesh.hosting(service), await mesh.guest_bus() as bus:
        assert await _read(bus) == [*texts, "last", "done"]


@pytest.mark.req("STREAM-14")
async def test_a_stream_that_is_refused_is_told_so_in_a_pack_too(
    mesh: Mesh, packs: list[list[Frame]]
) -> None:
    async with mesh.hosting(ProbeService(places=2 * STREAMS)) as host, await mesh.guest_bus() as bus:
        await offered(bus, CHAT)
        host._draining = True

        async def refused() -> str:
            with pytest.raises(HearthNetError) as caught:
                async with bus.stream(CHAT, CHAT_BODY, timeout_seconds=30) as stream:
                    await anext(stream)
            return caught.value.code

        codes = await asyncio.gather(*(refused() for _ in range(STREAMS)))
    assert set(codes) == {"capacity_exceeded"}
    assert {frame.header.event for frames in packs for frame in frames} == {"error"}


@pytest.mark.req("STREAM-15")
async def test_an_open_stream_is_one_task_at_its_provider_and_none_at_its_reader(mesh: Mesh) -> None:
    service = ProbeService(places=2 * STREAMS)

    async def quiet(call: Call[Any, Any], stream: Stream) -> None:
        await stream.send("token", {"text": "first"})
        await stream.receive()

    service.talk = quiet
    async with mesh.hosting(service) as host, await mesh.guest_bus() as bus:
        await offered(bus, CHAT)
        streams = [bus.stream(CHAT, CHAT_BODY) for _ in range(STREAMS)]
        first = await streams[0].__aenter__()
        await anext(first)
        before = len(asyncio.all_tasks())
        for stream in streams[1:]:
            await anext(await stream.__aenter__())
        assert len(asyncio.all_tasks()) - before == STREAMS - 1
        for stream in streams:
            await stream.__aexit__(None, None, None)
        await wait_for(lambda: host.in_flight == 0, 20, "all of them to be stopped")


@pytest.mark.req("STREAM-15")
async def test_a_reader_that_waits_hears_that_another_task_left_the_stream(mesh: Mesh) -> None:
    service = ProbeService()

    async def quiet(call: Call[Any, Any], stream: Stream) -> None:
        await stream.receive()

    service.talk = quiet
    async with mesh.hosting(service), await mesh.guest_bus() as bus, bus.stream(CHAT, CHAT_BODY) as stream:
        reading = asyncio.ensure_future(anext(stream, None))
        await wait_for(lambda: service.calls, 20, "the stream to be open")
        await stream.cancel()
        async with asyncio.timeout(20):
            assert await reading is None


@pytest.mark.req("STREAM-15")
async def test_several_tasks_of_a_handler_may_wait_for_the_window(mesh: Mesh) -> None:
    """One that is stopped meanwhile does not take the others with it."""
    service = ProbeService()

    async def talk(call: Call[Any, Any], stream: Stream) -> None:
        async def send(text: str) -> None:
            for _ in range(30):
                await stream.send("token", {"text": text})

        senders = [asyncio.create_task(send(text)) for text in ("a", "b", "c")]
        await asyncio.sleep(0)
        senders[0].cancel()
        await asyncio.wait(senders)
        for sender in senders[1:]:
            await sender

    service.talk = talk
    async with mesh.hosting(service), await mesh.guest_bus() as bus:
        found = Counter(await _read(bus))
    assert (found["b"], found["c"], found["done"]) == (30, 30, 1)


@pytest.mark.req("STREAM-15")
@pytest.mark.parametrize("when", ["a sign of life", "the end of a turn"])
async def test_a_reader_that_cannot_be_heard_any_more_is_told_so(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    service = ProbeService()

    async def quiet(call: Call[Any, Any], stream: Stream) -> None:
        await stream.send("token", {"text": "first"})
        await stream.receive()

    def away(*_: Any) -> None:
        raise HearthNetError("partition", "too much waits for the server")

    service.talk = quiet
    async with mesh.hosting(service), await mesh.guest_bus() as bus, bus.stream(CHAT, CHAT_BODY) as stream:
        await anext(stream)
        with monkeypatch.context() as patched:
            patched.setattr(streaming, "send_control_nowait", away)
            (stream.due if when == "a sign of life" else stream._acknowledge_turn)()
        with pytest.raises(HearthNetError, match="too much waits") as caught:
            await anext(stream)
        assert caught.value.code == "partition"
