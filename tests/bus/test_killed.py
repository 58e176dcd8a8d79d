"""Processes and servers that are killed or stopped in the middle of calls: nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from typing import Any

import psutil
import pytest

from hearthnet.bus.bus import Bus
from hearthnet.bus.calls import attempt
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol import stream
from tests.bus import failing_worker
from tests.bus.failing_worker import Worker
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT, QUERY, query
from tests.helpers.processes import paused
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import DEADLINE_SECONDS, wait_for

pytestmark = pytest.mark.asyncio


def _chat(question: str) -> dict[str, Any]:
    return {"params": {}, "input": {"messages": [{"role": "user", "content": question}]}}


async def _outcome(work: Awaitable[Any]) -> tuple[str, float]:
    """How it ended, and after how many seconds: a code, or the instance that answered."""
    clock = asyncio.get_running_loop().time
    began = clock()
    try:
        return (await work).instance, clock() - began
    except HearthNetError as error:
        return error.code, clock() - began


async def _at(bus: Bus, worker: Worker, name: str, what: str) -> None:
    """From now on the session of that name is with that process."""
    body = query(what) if name == QUERY else _chat(what)
    await bus.call(name, body, session="held", instance=worker.instance)


async def _running(bus: Bus) -> Counter[str]:
    """Calls that run now, by instance, as their offers say."""
    running: Counter[str] = Counter()
    for view in await bus.offers():
        running[view.offer.instance] += view.offer.in_flight
    return running


def _go(mesh: Mesh) -> None:
    (mesh.home.path / failing_worker.GO).touch()


@pytest.mark.req("BUS-70", "STREAM-70")
async def test_who_waits_for_a_process_that_is_killed_is_answered_by_another_or_told(mesh: Mesh) -> None:
    """SIGKILL in the middle of a call that may be repeated, of one that may not, and of two streams that may
    not, before and after the first word.
    """

    async def talk(what: str) -> None:
        async with bus.stream(CHAT, _chat(what), session="held", timeout_seconds=15) as stream:
            assert [frame.data async for frame in stream] == [{"text": "first"}]

    async def there() -> bool:
        return (await _running(bus))[victim.instance] == 4

    async with failing_worker.running(mesh, 2) as (victim, other), await mesh.bus() as bus:
        for name in (QUERY, CHAT):
            await _at(bus, victim, name, "plain")
        asked = (
            bus.call(QUERY, query("until go"), session="held"),
            bus.call(CHAT, _chat("hold"), session="held"),
            talk("hold"),
            talk("silence"),
        )
        waiting = [asyncio.create_task(_outcome(work)) for work in asked]
        await wait_for(there, what="all of them to be there")
        await victim.kill()
        watch = Stopwatch(mesh.server.process.pid, other.process.pid)
        _go(mesh)
        pure, *once = [code for code, _ in await asyncio.gather(*waiting)]
        took = watch.seconds()
        assert (pure, once) == (other.instance, ["partition"] * 3)
        assert took < attempt.PROBE_SECONDS + 1.5
        assert (await bus.call(CHAT, _chat("plain"), session="held")).instance == other.instance


@pytest.mark.req("BUS-71")
async def test_a_server_that_is_killed_and_comes_back_leaves_nobody_hanging(mesh: Mesh) -> None:
    """Services in three processes, 100 calls in flight that may be repeated and 100 that may not."""

    async def there() -> bool:
        return (await _running(bus)).total() == 200

    async with failing_worker.running(mesh, 3) as workers, await mesh.bus() as bus:
        asked = [bus.call(QUERY, query("until go"), timeout_seconds=30) for _ in range(100)]
        asked += [bus.call(CHAT, _chat("until go"), timeout_seconds=30) for _ in range(100)]
        waiting = [asyncio.create_task(_outcome(work)) for work in asked]
        await wait_for(there, what="all calls to be in flight")
        mesh.server.kill()
        mesh.server = mesh.server.again()
        watch = Stopwatch(mesh.server.process.pid, *(worker.process.pid for worker in workers))
        instances = {worker.instance for worker in workers}

        async def back() -> bool:
            return {view.offer.instance for view in await bus.offers(QUERY)} == instances

        async with asyncio.timeout(DEADLINE_SECONDS):
            await asyncio.gather(*(worker.announced() for worker in workers))
            await bus.peer.link.connected()
        await wait_for(back, what="everybody to be found")
        assert watch.seconds() < 5
        _go(mesh)
        ended = [code for code, _ in await asyncio.gather(*waiting)]
        answered, once = Counter(ended[:100]), Counter(ended[100:])
        assert answered.keys() <= instances, "who may ask again is answered"
        assert once == {"partition": 100}
        assert (await bus.call(QUERY, query())).instance in instances


@pytest.mark.req("BUS-72", "STREAM-71")
async def test_a_process_that_stands_still_counts_as_gone_until_it_goes_on(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps its connection, so that the server says nothing."""
    # It is looked at often enough to end before the server would disconnect it.
    monkeypatch.setattr(attempt, "PROBE_SECONDS", 0.5)
    async with failing_worker.running(mesh, 1) as [worker], await mesh.bus() as bus:
        await _at(bus, worker, QUERY, "plain")

        async def talk() -> None:
            async with bus.stream(CHAT, _chat("hold")) as stream:
                assert [frame.data async for frame in stream] == [{"text": "first"}]

        async def there() -> bool:
            return (await _running(bus))[worker.instance] == 2

        waiting = [
            asyncio.create_task(_outcome(work))
            for work in (bus.call(CHAT, _chat("hold"), timeout_seconds=30), talk())
        ]
        await wait_for(there, what="both to be there")
        monkeypatch.setattr(attempt, "SILENCE_MS", 1_500)
        monkeypatch.setattr(stream, "SILENCE_MS", 1_500)
        with paused(worker.process.pid):
            assert [code for code, _ in await asyncio.gather(*waiting)] == ["partition"] * 2
        assert (await bus.call(QUERY, query())).instance == worker.instance
        await wait_for(lambda: _idle(bus), what="what nobody waits for to be stopped")


async def _idle(bus: Bus) -> bool:
    return not (await _running(bus)).total()


@pytest.mark.req("BUS-73")
async def test_ten_thousand_calls_at_once_all_end_in_bounded_memory(mesh: Mesh) -> None:
    own, calls = psutil.Process(), 10_000
    async with failing_worker.running(mesh, 1) as [worker], await mesh.bus() as bus:
        await bus.call(QUERY, query())
        before, cpu = own.memory_info().rss, own.cpu_times()
        asked = (bus.call(QUERY, query(), timeout_seconds=60) for _ in range(calls))
        ended = Counter(code for code, _ in await asyncio.gather(*map(_outcome, asked)))
        each = (own.memory_info().rss - before) / calls
        used = own.cpu_times().user - cpu.user
        await wait_for(lambda: _idle(bus), what="all places to be free")
        assert ended == {worker.instance: calls}
        assert each < 16 * 1024
        assert used < 20
        assert len(bus.peer.replies._handlers) < 10
