"""A stream and its readers, without a socket: what is kept, resumed, summed up and given up."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.socket import channel
from hearthnet.gateway.socket.channel import MOST_CHARACTERS, MOST_FRAMES, Channel, Channels, Frame, Summary
from hearthnet.gateway.socket.frames import Confirm, ToolResult
from hearthnet.gateway.socket.protocol import WINDOW

OWNER = "ed25519:x/anna"


class Reader:
    """Reads a channel as a socket does, as far as it is let."""

    def __init__(self, after: int = 0) -> None:
        self.after = after
        self.woken = 0
        self.is_replaced = False

    def wake(self) -> None:
        self.woken += 1

    def replaced(self) -> None:
        self.is_replaced = True

    def read(self, channel: Channel, most: int = WINDOW) -> list[Frame]:
        taken = channel.take(self.after, most)
        if taken:
            self.after = taken[-1].seq
        return taken


class Worker:
    """What goes on behind a stream, as far as the channel knows."""

    def __init__(self) -> None:
        self.heard_of: list[str] = []

    def cancel(self) -> None:
        self.heard_of.append("cancel")

    async def handle(self, frame: ToolResult | Confirm) -> None:
        self.heard_of.append("heard")

    def left(self) -> None:
        self.heard_of.append("left")

    def back(self) -> None:
        self.heard_of.append("back")

    async def close(self) -> None:
        self.heard_of.append("close")


def stream(*, sums_up: bool = False, count: int = 0, end: bool = False) -> Channel:
    """A stream with `count` frames in it."""
    made = Channel("s", OWNER, sums_up=sums_up)
    for number in range(1, count + 1):
        made.put("token", {"text": f"{number} "})
    if end:
        made.put("done", {})
    return made


def seqs(frames: list[Frame]) -> list[int]:
    return [frame.seq for frame in frames]


def data(frame: Frame) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(frame.text)
    assert (decoded["seq"], decoded["event"]) == (frame.seq, frame.event)
    members: dict[str, Any] = decoded["data"]
    return members


@pytest.mark.req("SOCK-4", "SOCK-5")
def test_what_is_not_acknowledged_is_kept_for_the_next_reader() -> None:
    made, first = stream(count=5), Reader()
    made.attach(first, 0)
    assert seqs(first.read(made, 3)) == [1, 2, 3]
    made.acknowledge(2)
    made.detach(first, 10.0)
    assert (made.left_at, len(made._frames), made.read) == (10.0, 3, False)
    second = Reader(after=2)
    made.attach(second, 2)
    assert made.left_at is None
    assert seqs(second.read(made)) == [3, 4, 5]
    assert second.read(made) == []


@pytest.mark.req("SOCK-2", "SOCK-4")
def test_the_last_frame_goes_also_where_the_window_is_full() -> None:
    made = stream(count=2, end=True)
    assert seqs(made.take(0, 1)) == [1]
    assert made.take(0, 0) == []
    assert seqs(made.take(1, 1)) == [2, 3]
    assert seqs(made.take(2, 0)) == [3]
    made.put("token", {"text": "too late"})
    made.put("done", {})
    assert made.seq == 3


@pytest.mark.req("SOCK-7")
def test_a_second_reader_takes_over_and_the_first_is_told() -> None:
    made, first, second, worker = stream(count=1), Reader(), Reader(), Worker()
    made.work = worker
    made.attach(first, 0)
    made.attach(second, 0)
    assert (first.is_replaced, second.is_replaced) == (True, False)
    made.detach(first, 5.0)
    assert made.read
    made.detach(second, 6.0)
    made.attach(first, 1)
    assert worker.heard_of == ["back", "left", "back"]


@pytest.mark.req("SOCK-5")
def test_a_place_that_is_not_there_is_refused() -> None:
    made = stream(count=20)
    made.acknowledge(8)
    with pytest.raises(HearthNetError, match="frame 21 of this stream was never sent") as early:
        made.attach(Reader(), 21)
    with pytest.raises(HearthNetError, match="after frame 3 was acknowledged") as late:
        made.attach(Reader(), 3)
    assert (early.value.code, late.value.code) == ("bad_request", "expired")
    made.attach(Reader(), 8)


@pytest.mark.req("SOCK-6")
def test_a_reader_whose_place_is_gone_gets_the_sum_and_what_follows() -> None:
    made = stream(sums_up=True, count=MOST_FRAMES + 50)
    assert len(made._frames) == MOST_FRAMES - 1
    reader = Reader(after=10)
    made.attach(reader, 10)
    assert made.take(10, 0) == []
    (snapshot,) = reader.read(made)
    assert (snapshot.event, snapshot.seq) == ("snapshot", MOST_FRAMES + 50)
    assert data(snapshot)["text"] == "".join(f"{number} " for number in range(1, MOST_FRAMES + 51))
    made.put("token", {"text": "more"})
    made.put("done", {})
    assert [frame.event for frame in reader.read(made)] == ["token", "done"]


@pytest.mark.req("SOCK-6")
def test_the_sum_of_a_stream_that_has_ended_is_followed_by_its_end() -> None:
    made = stream(sums_up=True, count=MOST_FRAMES + 9, end=True)
    assert [(frame.event, frame.seq) for frame in made.take(0, WINDOW)] == [
        ("snapshot", MOST_FRAMES + 9),
        ("done", MOST_FRAMES + 10),
    ]
    made.acknowledge(made.seq)
    assert len(made._frames) == 1
    assert [frame.event for frame in made.take(3, WINDOW)] == ["snapshot", "done"]


@pytest.mark.req("SOCK-8")
@pytest.mark.asyncio
async def test_a_stream_without_a_sum_has_its_source_wait() -> None:
    made = stream(count=MOST_FRAMES)
    assert made.full
    waiting = asyncio.create_task(made.room())
    await asyncio.sleep(0)
    also = asyncio.create_task(made.room())
    await asyncio.sleep(0)
    also.cancel()
    await asyncio.wait({also})
    assert not waiting.done()
    made.acknowledge(1)
    await waiting
    made.put("token", {"text": "x"})
    again = asyncio.create_task(made.room())
    await asyncio.sleep(0)
    made.close()
    await again
    made.put("token", {"text": "nobody is there"})
    assert (made.seq, made.closed, len(made._frames)) == (MOST_FRAMES + 1, True, 0)


@pytest.mark.req("SOCK-8")
@pytest.mark.asyncio
async def test_bytes_count_as_frames_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "MOST_BYTES", 1000)
    made = Channel("s", OWNER, sums_up=False)
    made.put("chunk", {"data": "x" * 1000})
    assert made.full
    summed = Channel("s", OWNER, sums_up=True)
    for _ in range(3):
        summed.put("token", {"text": "x" * 600})
    assert len(summed._frames) == 1
    await summed.room()


@pytest.mark.req("SOCK-8")
@pytest.mark.asyncio
async def test_while_it_is_read_a_stream_with_a_sum_waits_and_forgets_nothing() -> None:
    made, reader = Channel("s", OWNER, sums_up=True), Reader()
    made.attach(reader, 0)
    for _ in range(MOST_FRAMES):
        made.put("token", {"text": "x"})
    waiting = asyncio.create_task(made.room())
    await asyncio.sleep(0)
    assert (waiting.done(), len(made._frames)) == (False, MOST_FRAMES)
    made.detach(reader, 1.0)
    await waiting
    made.put("token", {"text": "x"})
    assert len(made._frames) == MOST_FRAMES - 1


@pytest.mark.req("SOCK-5", "SOCK-7")
def test_streams_are_kept_for_a_while_and_for_their_owner_alone() -> None:
    kept = Channels(linger_seconds=60, most_of_one=2)
    first, second = kept.open(OWNER, sums_up=False), kept.open(OWNER, sums_up=False)
    reader = Reader()
    second.attach(reader, 0)
    first.attach(reader, 0)
    first.detach(reader, 100.0)
    assert kept.find(first.stream, OWNER) is first
    for stream, owner in ((first.stream, "ed25519:x/bert"), ("nowhere", OWNER)):
        with pytest.raises(HearthNetError, match="no stream"):
            kept.find(stream, owner)
    assert kept.sweep(159.0) == []
    assert kept.sweep(160.0) == [first]
    assert (first.closed, len(kept), list(kept)) == (True, 1, [second])
    kept.drop(first)
    kept.drop(second)
    assert len(kept) == 0


@pytest.mark.req("SOCK-17")
def test_one_client_has_so_many_streams_and_those_that_ended_give_way() -> None:
    kept = Channels(linger_seconds=60, most_of_one=2)
    first, second = kept.open(OWNER, sums_up=False), kept.open(OWNER, sums_up=False)
    with pytest.raises(HearthNetError) as full:
        kept.open(OWNER, sums_up=False)
    assert full.value.code == "capacity_exceeded"
    kept.open("ed25519:x/bert", sums_up=False)
    second.put("done", {})
    third = kept.open(OWNER, sums_up=False)
    assert second.closed
    assert [one for one in kept if one.owner == OWNER] == [first, third]


@pytest.mark.req("SOCK-17", "ATTACK-43")
def test_clients_of_another_node_share_its_streams() -> None:
    kept = Channels(linger_seconds=60, most_of_one=2)
    first, second = (kept.open(f"ed25519:x/{name}", "ed25519:x", sums_up=True) for name in "ab")
    with pytest.raises(HearthNetError, match="2 streams under way"):
        kept.open("ed25519:x/c", "ed25519:x", sums_up=True)
    second.run = "r"
    assert kept.of_run("r", "ed25519:x/b") is second
    assert kept.of_run("r", "ed25519:x/a") is None
    with pytest.raises(HearthNetError, match="no stream"):
        kept.find(first.stream, "ed25519:x/b")
    kept.drop(first)
    kept.open("ed25519:x/c", "ed25519:x", sums_up=True)


@pytest.mark.req("SOCK-6")
def test_a_sum_has_text_calls_and_what_is_asked() -> None:
    said = Summary()
    asked = {"tool_call_id": "c2", "confirmation_id": "x", "body": {"input": {"title": "Filter"}}}
    for event, members in (
        ("token", {"text": "Let me "}),
        ("token", {"text": "see."}),
        ("iteration", {"iteration": 1}),
        ("tool_call", {"id": "c1", "name": "search", "arguments": {"q": 1}}),
        ("tool_status", {"tool_call_id": "c1", "name": "search", "status": "running", "text": "runs"}),
        ("tool_call", {"id": "c2", "name": "post", "arguments": {}}),
        ("confirmation_required", asked),
        ("tool_status", {"tool_call_id": "c2", "name": "post", "status": "waiting", "text": "asks"}),
        ("tool_wanted", {"tool_call_id": "c3", "name": "camera"}),
    ):
        said.take(event, members)
    sum_of_it = said.data()
    assert (sum_of_it["text"], sum_of_it["truncated"]) == ("Let me see.", False)
    assert sum_of_it["calls"][0] == {
        "tool_call_id": "c1",
        "name": "search",
        "arguments": {"q": 1},
        "status": "running",
        "text": "runs",
    }
    assert (sum_of_it["pending"], len(sum_of_it["wanted"])) == ([asked], 1)
    said.take("tool_status", {"tool_call_id": "c2", "status": "running"})
    assert said.data()["pending"] == []
    said.take("suspended", {})
    assert said.data()["wanted"] == []


@pytest.mark.req("SOCK-6")
def test_of_very_much_text_the_beginning_is_dropped() -> None:
    said = Summary()
    for _ in range(3):
        said.take("token", {"text": "x" * (MOST_CHARACTERS // 2)})
    assert said.data()["truncated"]
    assert len(said.data()["text"]) == MOST_CHARACTERS


_STEPS = st.lists(
    st.one_of(
        st.just(("put", 1)),
        st.tuples(st.just("read"), st.integers(0, WINDOW)),
        st.tuples(st.just("ack"), st.integers(0, WINDOW)),
        st.tuples(st.just("break"), st.integers(0, 3)),
        st.just(("end", 0)),
    ),
    max_size=80,
)


@pytest.mark.req("SOCK-2", "SOCK-4", "SOCK-5")
@settings(max_examples=200, deadline=None)
@given(_STEPS, st.booleans())
def test_however_it_breaks_the_frames_are_the_same(steps: list[tuple[str, int]], sums_up: bool) -> None:
    made, got, acked, numbers = Channel("s", OWNER, sums_up=sums_up), list[Frame](), 0, itertools.count()
    reader = Reader()
    made.attach(reader, 0)
    for step, number in steps:
        if step == "put":
            made.put("token", {"text": str(next(numbers))})
        elif step == "end":
            made.put("done", {})
        elif step == "read":
            got += reader.read(made, number)
        elif step == "ack":
            acked = max(acked, min(number, reader.after))
            made.acknowledge(acked)
        else:
            # Frames on their way are lost with the connection; what was acknowledged was seen.
            reader = Reader(max(acked, reader.after - number))
            got = [frame for frame in got if frame.seq <= reader.after]
            made.attach(reader, reader.after)
    while taken := reader.read(made):
        got += taken
    assert seqs(got) == list(range(1, made.seq + 1))
    tokens = [data(frame)["text"] for frame in got if frame.event == "token"]
    assert tokens == [str(number) for number in range(len(tokens))]
    assert [frame.event for frame in got].count("done") == made.ended
    assert not made.ended or got[-1].event == "done"
