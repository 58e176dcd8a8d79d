"""Streams through a real socket: from the first frame to the last, and over breaks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from hearthnet.gateway.socket.channel import MOST_FRAMES
from hearthnet.gateway.socket.protocol import WINDOW
from tests.helpers.gateway import House
from tests.helpers.socket_client import Line, call_of, complete, limits, line
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio(loop_scope="module")
WORDS = "one two three four five six seven eight nine ten eleven twelve"
DEADLINE = 30.0


def numbered(frames: list[dict[str, Any]]) -> list[int]:
    return [frame["seq"] for frame in frames]


def text_of(frames: list[dict[str, Any]]) -> str:
    return "".join(frame["data"]["text"] for frame in frames if frame["event"] == "token")


async def whole(house: House, prompt: str) -> list[dict[str, Any]]:
    """A stream that nothing breaks, without its frame 0."""
    guest = house.guest()
    async with line(house, guest) as one:
        await one.call(house, guest, "llm.complete", complete(prompt))
        return (await one.rest())[1:]


@pytest.mark.req("SOCK-1", "SOCK-2")
async def test_a_stream_comes_in_order_and_ends_once(shared: House) -> None:
    guest = shared.guest()
    async with line(shared, guest) as one:
        await one.call(shared, guest, "llm.complete", complete(WORDS))
        frames = await one.rest()
    assert numbered(frames) == list(range(len(frames)))
    assert frames[0]["event"] == "opened"
    assert text_of(frames) == WORDS + " "
    assert [frame["event"] for frame in frames].count("done") == 1
    assert (frames[-1]["event"], one.close_code) == ("done", 1000)


@pytest.mark.req("SOCK-1")
async def test_a_call_that_does_not_stream_answers_with_its_result(shared: House) -> None:
    guest = shared.guest()
    body = {"params": {"corpus": "probe"}, "input": {"query": "water"}}
    async with line(shared, guest) as one:
        await one.call(shared, guest, "rag.query", body)
        frames = await one.rest()
    assert [frame["event"] for frame in frames] == ["opened", "result", "done"]
    assert frames[1]["data"]["output"]["chunks"][0]["text"] == "about water"
    assert shared.workshop.calls[-1].principal == shared.client(guest).principal


@pytest.mark.req("SOCK-5", "PAIN-14")
async def test_cut_at_every_frame_and_resumed_it_is_the_same_sequence(shared: House) -> None:
    expected = await whole(shared, WORDS)
    assert len(expected) == 13
    for place in range(len(expected) + 1):
        guest = shared.guest()
        async with line(shared, guest) as one:
            await one.call(shared, guest, "llm.complete", complete(WORDS))
            stream = (await one.until("opened"))["data"]["stream"]
            for _ in range(place):
                assert await one.next() is not None
            seen = one.seen[1:]
            one.cut()
        async with line(shared, guest) as again:
            await again.send("resume", stream=stream, after=place)
            rest = await again.rest()
        assert (rest[0]["event"], rest[0]["data"]["stream"]) == ("opened", stream), rest
        assert [_told(frame) for frame in seen + rest[1:]] == [_told(frame) for frame in expected], place
        assert again.close_code == 1000


def _told(frame: dict[str, Any]) -> tuple[Any, ...]:
    """A frame without what differs from one answer to the next."""
    return frame["seq"], frame["event"], frame["data"].get("text")


@pytest.mark.req("SOCK-5")
async def test_a_stream_goes_on_while_nobody_reads_it(shared: House) -> None:
    shared.workshop.go.clear()
    guest = shared.guest()
    async with line(shared, guest) as one:
        await one.call(shared, guest, "llm.complete", complete("slow 3"))
        stream = (await one.until("opened"))["data"]["stream"]
        one.cut()
    channel = shared.gateway.sockets.channels.find(stream, shared.client(guest).principal)
    await wait_for(lambda: not channel.read, DEADLINE)
    shared.workshop.go.set()
    await wait_for(lambda: channel.ended, DEADLINE)
    async with line(shared, guest) as again:
        await again.send("resume", stream=stream)
        events = [frame["event"] for frame in await again.rest()]
    assert events == ["opened", "progress", "progress", "progress", "token", "token", "done"]


@pytest.mark.req("SOCK-7")
async def test_a_resumption_takes_the_stream_over(shared: House) -> None:
    shared.workshop.go.clear()
    guest = shared.guest()
    async with line(shared, guest) as first, line(shared, guest) as second:
        await first.call(shared, guest, "llm.complete", complete("slow 2"))
        stream = (await first.until("opened"))["data"]["stream"]
        await second.send("resume", stream=stream)
        await second.until("opened")
        assert [frame["event"] for frame in await first.rest()] == ["opened"]
        assert (first.close_code, first.reason.partition(":")[0]) == (4409, "replaced")
        shared.workshop.go.set()
        assert (await second.rest())[-1]["event"] == "done"


@pytest.mark.req("SOCK-5", "SOCK-7")
async def test_nobody_resumes_what_is_not_there_or_not_theirs(shared: House) -> None:
    shared.workshop.go.clear()
    guest, other = shared.guest(), shared.guest()
    async with line(shared, guest) as first:
        await first.call(shared, guest, "llm.complete", complete("slow 1"))
        stream = (await first.until("opened"))["data"]["stream"]
        for who, wanted, code in (
            (other, {"stream": stream}, "not_found"),
            (guest, {"stream": "01JZZZZZZZZZZZZZZZZZZZZZ01"}, "not_found"),
            (guest, {"stream": stream, "after": 99}, "bad_request"),
        ):
            async with line(shared, who) as one:
                await one.send("resume", **wanted)
                (refused,) = await one.rest()
            assert (refused["event"], refused["seq"], refused["data"]["error"]) == ("error", 0, code)
            assert one.close_code == 1000
        shared.workshop.go.set()
        assert (await first.rest())[-1]["event"] == "done"


@pytest.mark.req("SOCK-12")
async def test_cancel_stops_the_provider(shared: House) -> None:
    shared.workshop.go.clear()
    guest = shared.guest()
    async with line(shared, guest) as one:
        await one.call(shared, guest, "llm.complete", complete("slow 5"))
        await one.until("opened")
        call = await wait_for(
            lambda: next(
                (call for call in shared.workshop.calls if call.principal == shared.client(guest).principal),
                None,
            ),
            DEADLINE,
        )
        await one.send("cancel")
        frames = await one.rest()
    assert (frames[-1]["event"], frames[-1]["data"]) == ("done", {"stop_reason": "cancelled"})
    await wait_for(lambda: call.id in shared.workshop.stopped, DEADLINE)
    shared.workshop.go.set()


@pytest.mark.req("SOCK-12", "SOCK-24")
@pytest.mark.parametrize("kind", ["stream", "answer", "effect", "run"])
async def test_cancel_right_behind_its_call_ends_the_stream(shared: House, kind: str) -> None:
    said = {"messages": [{"role": "user", "content": "Stop at once"}], "tools": ["search_corpus"]}
    capability, body = {
        "stream": ("llm.complete", complete("slow 1")),
        "answer": ("rag.query", {"params": {"corpus": "probe"}, "input": {"query": "water"}}),
        "effect": ("market.post", {"params": {}, "input": {"category": "offer", "title": "a", "body": "b"}}),
        "run": ("llm.chat", {"params": {}, "input": said}),
    }[kind]
    version = "2.0" if kind == "run" else "1.0"
    guest = shared.guest()
    for _ in range(shared.gateway.sockets.settings.most_streams + 1):
        async with line(shared, guest) as one:
            one.send_together(call_of(shared, guest, capability, body, version=version), {"type": "cancel"})
            frames = await asyncio.wait_for(one.rest(), DEADLINE)
        assert [frame["event"] for frame in frames][:1] == ["opened"]
        assert (frames[-1]["event"], frames[-1]["data"]["stop_reason"]) == ("done", "cancelled")


@pytest.mark.req("SOCK-5", "SOCK-17")
async def test_a_stream_that_nobody_comes_back_for_is_given_up(shared: House) -> None:
    shared.workshop.go.clear()
    guest = shared.guest()
    with limits(shared, linger_seconds=0.1):
        async with line(shared, guest) as one:
            await one.call(shared, guest, "llm.complete", complete("slow 5"))
            stream = (await one.until("opened"))["data"]["stream"]
            one.cut()
        sockets = shared.gateway.sockets
        await wait_for(lambda: stream not in {channel.stream for channel in sockets.channels}, DEADLINE)
    me = shared.client(guest).principal
    (call,) = [call for call in shared.workshop.calls if call.principal == me]
    await wait_for(lambda: call.id in shared.workshop.stopped, DEADLINE)
    shared.workshop.go.set()


@pytest.mark.req("SOCK-8", "PAIN-14")
async def test_who_does_not_read_is_closed_and_costs_others_nothing(shared: House) -> None:
    many = " ".join(f"w{number}" for number in range(MOST_FRAMES + 60))
    slow, quick = shared.guest(), shared.guest()
    async with line(shared, slow) as stalled:
        stalled.acks = False
        await stalled.call(shared, slow, "llm.complete", complete(many))
        for _ in range(WINDOW + 1):
            await stalled.next()
        stream = stalled.seen[0]["data"]["stream"]
        channel = shared.gateway.sockets.channels.find(stream, shared.client(slow).principal)
        await wait_for(lambda: channel.full, DEADLINE)
        async with line(shared, quick) as other:
            await other.call(shared, quick, "llm.complete", complete(many))
            assert text_of(await other.rest()) == many + " "
        assert (channel.ended, stalled.close_code) == (False, None)
        with limits(shared, stall_seconds=0.1):
            assert [frame["seq"] for frame in await stalled.rest()] == list(range(WINDOW + 1))
            assert (stalled.close_code, stalled.reason.partition(":")[0]) == (4429, "rate_limited")
        await wait_for(lambda: channel.ended, DEADLINE)
        async with line(shared, slow) as again:
            await again.send("resume", stream=stream, after=WINDOW)
            events = [(frame["event"], frame["seq"]) for frame in await again.rest()]
    assert events == [("opened", 0), ("snapshot", MOST_FRAMES + 60), ("done", MOST_FRAMES + 61)]
    assert again.seen[1]["data"]["text"] == many + " "


@pytest.mark.req("SOCK-4")
async def test_numbers_are_dense_whoever_acknowledges_how(shared: House) -> None:
    many = " ".join(f"w{number}" for number in range(100))
    for every in (1, 16):
        guest = shared.guest()
        async with line(shared, guest) as one:
            one.acks = False
            await one.call(shared, guest, "llm.complete", complete(many))
            while (frame := await one.next()) is not None:
                if frame["seq"] and frame["seq"] % every == 0:
                    await _acknowledge(one, frame["seq"])
        assert numbered(one.seen) == list(range(102))


async def _acknowledge(one: Line, upto: int) -> None:
    try:
        await one.send("ack", upto=upto)
    except ConnectionClosed:
        await asyncio.sleep(0)


@pytest.mark.req("SOCK-1")
async def test_a_deadline_of_the_clients_own_is_kept(shared: House) -> None:
    shared.workshop.go.clear()
    guest, watch = shared.guest(), Stopwatch(shared.mesh.server.process.pid)
    async with line(shared, guest) as one:
        await one.call(shared, guest, "llm.complete", complete("slow 1"), timeout_ms=200)
        last = (await one.rest())[-1]
        took = watch.seconds()
    shared.workshop.go.set()
    assert (last["event"], last["data"]["error"]) == ("error", "timeout")
    assert took < 2
