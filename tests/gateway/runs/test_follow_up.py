"""One turn for a client that asks once and goes, on runs that do what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from hearthnet.agent.runtime.driver import Outcome
from hearthnet.agent.runtime.ports import Listener
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.runs.calls import Frame, Frames, collected
from hearthnet.gateway.runs.follow_up import RunDeduplicator, run_frames
from hearthnet.gateway.runs.run import GatewayRun
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio


class Run:
    """Says its frames, and ends when it may."""

    def __init__(self, hear: Listener | None, *events: str, error: Exception | None = None) -> None:
        self.go_on = asyncio.Event()
        self.stopped = False
        self._hear = hear
        self._events = events
        self._error = error

    def drive(self) -> asyncio.Task[Outcome]:
        return asyncio.create_task(self._drive())

    async def _drive(self) -> Outcome:
        try:
            for seq, event in enumerate(self._events, start=1):
                if self._hear is not None:
                    await self._hear({"event": event, "data": {}, "seq": seq})
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.stopped = True
            raise
        if self._error is not None:
            raise self._error
        return Outcome(run="r", message={}, messages=[], done={})


def opened(
    made: list[Run], *events: str, error: Exception | None = None, ends: bool = True
) -> Callable[..., Any]:
    async def opening(hear: Listener | None = None) -> GatewayRun:
        run = Run(hear, *events, error=error)
        made.append(run)
        if ends:
            run.go_on.set()
        return cast("GatewayRun", run)

    return opening


async def names(frames: Frames) -> list[str]:
    return [frame["event"] async for frame in frames]


@pytest.mark.req("HTTP-33")
async def test_all_frames_of_a_run_come_before_its_end() -> None:
    assert await names(run_frames(opened([], *["token"] * 100, "done"))) == ["token"] * 100 + ["done"]
    assert await names(run_frames(opened([]))) == []


@pytest.mark.req("HTTP-33")
async def test_what_ends_a_run_badly_is_raised_after_its_frames() -> None:
    error = HearthNetError("partition", "gone")
    frames = run_frames(opened([], "token", "error", error=error))
    assert (await anext(frames))["event"] == "token"
    with pytest.raises(HearthNetError, match="gone"):
        await anext(frames)


@pytest.mark.req("HTTP-35")
async def test_leaving_the_frames_stops_the_run() -> None:
    made: list[Run] = []
    frames = run_frames(opened(made, "token", ends=False))
    assert (await anext(frames))["event"] == "token"
    await frames.aclose()
    assert made[0].stopped


@pytest.mark.req("HTTP-2")
async def test_frames_are_collected_and_no_frame_at_all_is_no_answer() -> None:
    async def three() -> Frames:
        for seq, event in enumerate(("chunk", "chunk", "done"), start=1):
            yield frame(event, seq)

    async def none() -> Frames:
        for seq in range(0):
            yield frame("done", seq)

    before, last = await collected(three())
    assert [one["seq"] for one in before] == [1, 2]
    assert last["event"] == "done"
    with pytest.raises(HearthNetError, match="ended before"):
        await collected(none())


def frame(event: str, seq: int) -> Frame:
    return {"event": event, "data": {}, "seq": seq}


@pytest.mark.req("HTTP-30")
async def test_two_requests_about_one_run_wait_for_one_outcome() -> None:
    turns, made = RunDeduplicator(), list[Run]()
    opening = opened(made, ends=False)
    first = asyncio.create_task(turns.outcome("anna", "r", opening))
    second = asyncio.create_task(turns.outcome("anna", "r", opening))
    other = asyncio.create_task(turns.outcome("ben", "r", opening))
    await wait_for(lambda: len(made) == 2, 30)
    for run in made:
        run.go_on.set()
    told = await asyncio.gather(first, second, other)
    assert [joined for _, joined in told] == [False, True, False]
    assert told[0][0] is told[1][0]
    assert told[2][0] is not told[0][0]
    assert len(made) == 2


@pytest.mark.req("HTTP-35")
async def test_a_run_is_stopped_when_the_last_who_waits_for_it_leaves() -> None:
    turns, made = RunDeduplicator(), list[Run]()
    opening = opened(made, ends=False)
    waiting = [asyncio.create_task(turns.outcome("anna", "r", opening)) for _ in range(2)]
    await wait_for(lambda: made, 30)
    for task in waiting:
        assert not made[0].stopped
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert made[0].stopped
    after = asyncio.create_task(turns.outcome("anna", "r", opened(made)))
    assert (await after)[1] is False
