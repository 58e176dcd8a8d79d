"""Topics: one source, many followers, a bounded memory; and what is told of how things change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.socket import topic as topics
from hearthnet.gateway.socket.channel import Frame
from hearthnet.gateway.socket.protocol import WINDOW
from hearthnet.gateway.socket.topic import (
    RING_FRAMES,
    DiffLook,
    MarketLook,
    Publish,
    Ring,
    Topic,
    WatchedFeed,
)
from tests.helpers.waiting import wait_for


class Told:
    """A reader that counts how often it was woken."""

    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1

    def replaced(self) -> None:
        raise AssertionError("nobody takes a topic over")


class Source(WatchedFeed):
    """A feed that a test speaks for."""

    def __init__(self) -> None:
        self.begun = self.ended = 0
        self.publish: Publish | None = None
        self.fails = False

    def state(self) -> dict[str, Any]:
        return {"all": "there is"}

    async def follow(self, publish: Publish, known: Callable[[], None]) -> None:
        self.begun += 1
        self.publish = publish
        if self.fails:
            raise RuntimeError("the test says so")
        try:
            known()
            await asyncio.Event().wait()
        finally:
            self.ended += 1


def seqs(frames: list[Frame] | None) -> list[int]:
    assert frames is not None
    return [frame.seq for frame in frames]


@pytest.mark.req("SOCK-14")
def test_a_ring_knows_its_newest_frames_and_no_other_places() -> None:
    ring = Ring(1000, most=4)
    assert (ring.after(1000, 9), ring.after(999, 9), ring.after(1001, 9)) == ([], None, None)
    for number in range(6):
        ring.put("posted", {"number": number})
    assert ring.seq == 1006
    assert seqs(ring.after(1002, 9)) == [1003, 1004, 1005, 1006]
    assert seqs(ring.after(1003, 2)) == [1004, 1005]
    assert ring.after(1001, 9) is None


@pytest.mark.req("SOCK-14", "SOCK-15")
@pytest.mark.asyncio
async def test_all_followers_share_one_source_and_its_frames() -> None:
    source, first, second = Source(), Told(), Told()
    topic = Topic("mesh", source)
    topic.attach(first)
    assert topic.take(0, WINDOW) == []
    await wait_for(lambda: source.publish)
    topic.attach(second)
    (snapshot,) = topic.take(0, WINDOW)
    assert (snapshot.event, snapshot.seq) == ("snapshot", topic.seq)
    assert msgspec.json.decode(snapshot.text)["data"] == {"all": "there is"}
    before = topic.seq
    assert source.publish is not None
    for number in range(3):
        source.publish("appeared", {"number": number})
    assert seqs(topic.take(before, WINDOW)) == [before + 1, before + 2, before + 3]
    assert topic.take(before, WINDOW)[0].text is topic.take(before, 1)[0].text
    assert topic.take(before, 0) == []
    assert (source.begun, len(topic)) == (1, 2)
    assert min(first.woken, second.woken) >= 3
    topic.detach(first, 1.0)
    assert topic.left_at is None
    topic.detach(second, 2.0)
    topic.detach(second, 3.0)
    assert topic.left_at == 2.0
    await wait_for(lambda: source.ended)
    topic.attach(first)
    await wait_for(lambda: source.begun == 2)
    assert seqs(topic.take(before, WINDOW)) == [before + 1, before + 2, before + 3]
    topic.acknowledge(before + 1)
    await topic.close()
    await topic.close()
    assert source.ended == 2


@pytest.mark.req("SOCK-14")
@pytest.mark.asyncio
async def test_a_place_of_long_ago_gets_a_snapshot() -> None:
    source, told = Source(), Told()
    topic = Topic("mesh", source)
    topic.attach(told)
    await wait_for(lambda: source.publish)
    begun = topic.seq
    for number in range(RING_FRAMES + 1):
        topic.put("appeared", {"number": number})
    assert [frame.event for frame in topic.take(begun, WINDOW)] == ["snapshot"]
    assert len(topic.take(begun + 1, WINDOW)) == WINDOW
    assert [frame.event for frame in topic.take(begun - 50_000, WINDOW)] == ["snapshot"]
    await topic.close()


@pytest.mark.req("SOCK-15")
@pytest.mark.asyncio
async def test_a_source_that_breaks_is_followed_anew(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "RETRY_SECONDS", 0.001)
    source, told = Source(), Told()
    source.fails = True
    topic = Topic("mesh", source)
    topic.attach(told)
    await wait_for(lambda: source.begun >= 2)
    source.fails = False
    await wait_for(lambda: topic.take(0, WINDOW))
    await topic.close()
    assert "broke, and is followed anew" in caplog.text


@pytest.mark.req("SOCK-14")
@pytest.mark.asyncio
async def test_what_is_different_is_told_and_nothing_else() -> None:
    there = [{"a": {"n": 1}, "b": {"n": 1}}, {"a": {"n": 1}, "b": {"n": 1}}, {"b": {"n": 2}, "c": {"n": 3}}]

    async def items() -> dict[str, dict[str, Any]]:
        return there.pop(0)

    seen = DiffLook("things", items)
    assert await seen.look() == [("appeared", {"n": 1})] * 2
    assert await seen.look() == []
    assert await seen.look() == [
        ("gone", {"n": 1}),
        ("changed", {"n": 2}),
        ("appeared", {"n": 3}),
    ]


class Market:
    """Answers market.list from what a test puts into it."""

    def __init__(self) -> None:
        self.posts: list[dict[str, Any]] = []
        self.removed: list[str] = []
        self.ended: list[dict[str, Any]] = []
        self.lamport = 0
        self.muted: set[str] = set()
        """Posts of authors whom the client has muted that is asked for at the moment."""

    async def ask(self, given: dict[str, Any]) -> dict[str, Any]:
        left_out = set() if given.get("muted") else self.muted
        posts = [post for post in self.posts if post["lamport"] > given["since_lamport"]]
        posts = [post for post in posts if post["event_id"] not in left_out]
        told = {"posts": posts, "removed": self.removed, "max_lamport": self.lamport}
        return {**told, "ended": self.ended} if self.ended else told

    def post(self, event_id: str) -> dict[str, Any]:
        self.lamport += 1
        post = {"event_id": event_id, "lamport": self.lamport}
        self.posts.append(post)
        return post


@pytest.mark.req("SOCK-14")
@pytest.mark.asyncio
async def test_the_market_tells_of_posts_that_come_and_end() -> None:
    market = Market()
    look = MarketLook(market.ask)
    old = market.post("e1")
    assert await look.look() == [("posted", old)]
    new = market.post("e2")
    market.removed, market.lamport = ["e1", "e0"], market.lamport + 1
    assert await look.look() == [("posted", new), ("ended", {"event_id": "e1"})]
    again = market.post("e2")
    market.removed = []
    assert await look.look() == [("changed", again)]
    assert look.state() == {"posts": [again]}
    market.removed, market.ended = ["e2"], [{"event_id": "e2", "reason": "stale", "by": "somebody"}]
    assert await look.look() == [("ended", market.ended[0])]
    market.removed, market.ended = [], []
    last = market.post("e3")
    assert await look.look() == [("posted", last)]
    market.posts, market.lamport = [], 0
    fresh = market.post("e9")
    assert await look.look() == [("reset", {}), ("posted", fresh)]
    assert look.state() == {"posts": [fresh]}


@pytest.mark.req("MARKET-39", "SOCK-14")
@pytest.mark.asyncio
async def test_the_market_of_all_clients_has_what_one_has_muted() -> None:
    market = Market()
    market.muted = {"e1"}
    look = MarketLook(market.ask)
    post = market.post("e1")
    assert await look.look() == [("posted", post)]
    assert look.state() == {"posts": [post]}


@pytest.mark.req("SOCK-14")
@pytest.mark.asyncio
async def test_what_cannot_be_seen_just_now_is_told_once() -> None:
    away, late = HearthNetError("partition", "away"), HearthNetError("timeout", "late")
    answers: list[Any] = [away, away, {}, late, late, {"r": {"run": "r"}}]
    seen: list[tuple[str, dict[str, Any]]] = []
    known: list[bool] = []
    looked = asyncio.Event()

    async def listing() -> dict[str, dict[str, Any]]:
        if known:
            await looked.wait()
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, HearthNetError):
            raise answer
        found: dict[str, dict[str, Any]] = answer
        return found

    feed = WatchedFeed(DiffLook("runs", listing), 0.001)
    task = asyncio.create_task(
        feed.follow(lambda event, data: seen.append((event, data)), lambda: known.append(True))
    )
    await wait_for(lambda: known)
    assert feed.state()["problem"]["error"] == "partition"
    looked.set()
    await wait_for(lambda: any(event == "appeared" for event, _ in seen))
    task.cancel()
    await asyncio.wait({task})
    # The first failure is in the snapshot, the second one in a frame.
    assert seen == [("notice", late.to_body()), ("appeared", {"run": "r"})]
    assert feed.state() == {"runs": [{"run": "r"}]}


@pytest.mark.asyncio
@pytest.mark.req("SOCK-14")
async def test_what_happened_while_nobody_followed_is_told_to_who_comes_back() -> None:
    runs: dict[str, dict[str, Any]] = {}

    async def listing() -> dict[str, dict[str, Any]]:
        return dict(runs)

    feed = WatchedFeed(DiffLook("runs", listing), 3600)
    heard: list[tuple[str, dict[str, Any]]] = []
    for expected in (0, 1):
        followed = asyncio.Event()
        task = asyncio.create_task(feed.follow(lambda event, data: heard.append((event, data)), followed.set))
        await asyncio.wait_for(followed.wait(), 20)
        task.cancel()
        await asyncio.wait({task})
        assert len(heard) == expected
        runs["r1"] = {"run": "r1", "state": "working"}
    assert heard == [("appeared", {"run": "r1", "state": "working"})]
