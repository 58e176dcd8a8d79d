"""Calls in one task until one of them waits: order, cancelling, contexts, and what ends in an error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import pytest

from hearthnet.service.hosting.scheduler import CallScheduler
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
NAME: ContextVar[str] = ContextVar("name", default="")
PATIENCE = 30.0


class Piece:
    """A call that does what it is told."""

    def __init__(self, log: list[Any], name: str, work: Callable[[], Awaitable[Any]]) -> None:
        self.task: asyncio.Task[None] | None = None
        self.name = name
        self._log = log
        self._work = work

    async def run(self) -> None:
        """Notes whose context it runs in, and in which task."""
        self._log.append((self.name, NAME.get(), asyncio.current_task()))
        NAME.set(self.name)
        await self._work()
        if NAME.get() != self.name or asyncio.current_task() is not self.task:
            raise RuntimeError("another's context or task")


class Bench:
    """Turns, and what came of each call."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.ended: dict[str, BaseException | None] = {}
        self.turns = CallScheduler(self._ended)

    def _ended(self, piece: Piece, error: BaseException | None) -> None:
        self.ended[piece.name] = error

    def begin(self, name: str, work: Callable[[], Awaitable[Any]]) -> Piece:
        """Has it run in the next turn."""
        piece = Piece(self.log, name, work)
        self.turns.begin(piece)
        return piece

    async def over(self, *names: str) -> None:
        """Waits for their ends."""
        await wait_for(lambda: set(names) <= set(self.ended), PATIENCE)

    def tasks(self) -> list[Any]:
        """The task that each began in."""
        return [task for _, _, task in self.log]


async def nothing() -> None:
    """Needs not wait."""


@pytest.mark.req("BUS-97")
async def test_calls_that_need_not_wait_share_a_task_and_no_context() -> None:
    bench = Bench()
    for name in "abc":
        bench.begin(name, nothing)
    await bench.over("a", "b", "c")
    assert [(name, seen) for name, seen, _ in bench.log] == [("a", ""), ("b", ""), ("c", "")]
    assert len(set(bench.tasks())) == 1
    assert set(bench.ended.values()) == {None}
    bench.begin("d", nothing)
    await bench.over("d")


@pytest.mark.req("BUS-97")
async def test_one_that_waits_keeps_the_task_and_the_others_go_on() -> None:
    bench, go_on = Bench(), asyncio.Event()
    pieces = [bench.begin(name, go_on.wait if name in "bd" else nothing) for name in "abcde"]
    await bench.over("a", "c", "e")
    tasks = bench.tasks()
    assert tasks[0] is tasks[1] is not tasks[2]
    assert tasks[2] is tasks[3] is not tasks[4]
    assert set(bench.ended) == {"a", "c", "e"}
    go_on.set()
    await bench.over("b", "d")
    assert set(bench.ended.values()) == {None}
    assert all(piece.task is not None and piece.task.done() for piece in pieces)


@pytest.mark.req("BUS-97", "BUS-4")
async def test_one_that_waits_is_cancelled_alone_and_may_use_its_tasks_time() -> None:
    bench = Bench()

    async def late() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()

    waiting = bench.begin("waiting", asyncio.Event().wait)
    bench.begin("late", late)
    bench.begin("quick", nothing)
    await bench.over("late", "quick")
    assert waiting.task is not None
    waiting.task.cancel()
    await bench.over("waiting")
    assert isinstance(bench.ended.pop("waiting"), asyncio.CancelledError)
    assert set(bench.ended.values()) == {None}
    assert waiting.task.cancelled()


@pytest.mark.req("BUS-97")
async def test_an_error_is_of_its_call_alone() -> None:
    bench = Bench()

    async def fails() -> None:
        raise ValueError("before")

    async def fails_late() -> None:
        await asyncio.sleep(0)
        raise ValueError("after")

    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    async def rests() -> None:
        await asyncio.sleep(0)

    late = bench.begin("late", fails_late)
    bench.begin("early", fails)
    bench.begin("itself", cancels_itself)
    bench.begin("rests", rests)
    await bench.over("late", "early", "itself", "rests")
    assert {name: str(error) for name, error in bench.ended.items() if error} == {
        "late": "after",
        "early": "before",
    }
    assert late.task is not None
    await asyncio.wait({late.task})
    assert isinstance(late.task.exception(), ValueError)


@pytest.mark.req("BUS-97")
async def test_a_task_that_is_cancelled_before_its_first_step_leaves_the_calls_to_another() -> None:
    bench = Bench()
    bench.begin("a", nothing)
    first = bench.turns._task
    assert first is not None
    first.cancel()
    await bench.turns.wait_begun()
    await bench.over("a")
    assert first.cancelled()
    assert bench.tasks() != [first]


@pytest.mark.req("BUS-97")
async def test_what_ends_the_program_ends_the_task_and_leaves_the_calls_to_another() -> None:
    bench = Bench()

    async def leaves() -> None:
        raise SystemExit(3)

    bench.begin("leaves", leaves)
    bench.begin("next", nothing)
    batch = bench.turns._task
    assert batch is not None
    coroutine: Any = batch.get_coro()
    with pytest.raises(SystemExit):
        coroutine.send(None)
    batch.cancel()
    await bench.over("leaves", "next")
    assert isinstance(bench.ended["leaves"], SystemExit)


@pytest.mark.req("BUS-97")
async def test_only_a_task_runs_it() -> None:
    bench = Bench()
    bench.begin("a", nothing)
    batch = bench.turns._task
    assert batch is not None
    coroutine: Any = batch.get_coro()
    with pytest.raises(TypeError):
        await coroutine
    coroutine.close()
    await bench.over("a")


@pytest.mark.req("BUS-97")
async def test_each_has_the_context_of_who_began_it_though_they_share_a_task() -> None:
    bench = Bench()
    NAME.set("first caller")
    bench.begin("a", nothing)
    NAME.set("second caller")
    bench.begin("b", asyncio.Event().wait)
    NAME.set("third caller")
    bench.begin("c", nothing)
    NAME.set("")
    await bench.over("a", "c")
    assert [seen for _, seen, _ in bench.log] == ["first caller", "second caller", "third caller"]
    waiting = bench.log[1][2]
    waiting.cancel()
    await bench.over("b")


@pytest.mark.req("BUS-97")
async def test_an_error_in_what_hears_of_an_end_keeps_nobody_from_beginning() -> None:
    bench = Bench()
    hear = bench.turns._ended

    def choke(piece: Piece, error: BaseException | None) -> None:
        bench.turns._ended = hear
        raise RuntimeError("not to my taste")

    bench.turns._ended = choke
    bench.begin("a", nothing)
    bench.begin("b", nothing)
    batch = bench.turns._task
    assert batch is not None
    await bench.over("b")
    assert isinstance(batch.exception(), RuntimeError)
    bench.begin("c", nothing)
    await bench.over("c")
