"""The tool loop beside pydantic-ai and LangGraph: a question, four calls at once, their results, the answer.

Side by side in one run and in turns; each way is the whole turn as its users write it (loop_rivals.py,
loop_ports.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Mapping
from pathlib import Path
from typing import Any, Final

from hearthnet.agent.persistence.jetstream_store import StoredRuns
from hearthnet.agent.persistence.run_record import Sealer
from hearthnet.bus.bus import Bus
from hearthnet.bus.store import Store
from tests.bench.bus_bench import UNLIMITED
from tests.bench.figures import ROUNDS, Figure
from tests.bench.loop_ports import BODY, NoBus, OverTheBus, executor, ours
from tests.bench.loop_rivals import RIVALS, TOOLS, Turn
from tests.bench.loop_turn import ANSWER, CALLS, declared, declared_own, declared_slow, slow_calls
from tests.bench.rivals import answering
from tests.helpers.mesh import Mesh, start_mesh

_TURNS: Final = 40
_BATCH: Final = 5
_SAVES: Final = 200
_PEERS: Final = "tests.bench.loop_peers"


def figures() -> list[Figure]:
    """Ratios of whole turns, and the times that have a goal of their own."""
    with tempfile.TemporaryDirectory(prefix="hn-bench-") as folder:
        return asyncio.run(measure(Path(folder), _TURNS))


async def measure(folder: Path, turns: int) -> list[Figure]:
    """The figures of so many turns a round, with a node in `folder`."""
    mesh = await start_mesh(folder)
    try:
        async with _providers(mesh), await mesh.bus("bench") as bus, await mesh.store() as store:
            return [*await _figures(bus, store, turns), *await _saving(bus, store, turns)]
    finally:
        mesh.server.stop()


@contextlib.asynccontextmanager
async def _providers(mesh: Mesh) -> AsyncIterator[None]:
    """Documents, posts and the model, each in a process of its own."""
    mesh.home.config_file.write_text(UNLIMITED)
    address = f"{mesh.home.path}={mesh.server.url}"
    async with contextlib.AsyncExitStack() as stack:
        for name in ("documents", "posts", "model"):
            await stack.enter_async_context(answering(name, address, _PEERS))
        yield


async def _figures(bus: Bus, store: Store, turns: int) -> list[Figure]:
    ways = {name: make(TOOLS) for name, make in RIVALS.items()}
    ways["ours"] = ours(NoBus(), declared_own())
    ways["bus"] = ours(OverTheBus(bus), declared())
    ways["bus_model"] = ours(bus, declared())
    ways["bus_kept"] = ours(OverTheBus(bus), declared(), StoredRuns(store, bus.peer.identity))
    took = await in_turns(ways, turns, {"bus", "bus_model", "bus_kept"})
    slow = ours(OverTheBus(bus, slow_calls()), declared_slow())
    slow_took = await in_turns({"slow": slow}, turns // 4, {"slow"})
    first = await first_call(bus, turns)
    rival, plain = took["pydantic_ai"], took["pydantic_ai_plain"]
    return [
        Figure("loop.pydantic_ai_ms", rival, "ms", "", "a turn with 4 calls: pydantic-ai, streamed"),
        Figure("loop.pydantic_ai_plain_ms", plain, "ms", "", "the same, not streamed"),
        Figure("loop.langgraph_ms", took["langgraph"], "ms", "", "LangGraph's prebuilt agent, not streamed"),
        Figure("loop.vs_pydantic_ai", took["ours"] / rival, "x", "< 0.0667", "tools of this process"),
        Figure("loop.vs_pydantic_ai_plain", took["ours"] / plain, "x", "", "the same beside the plain one"),
        Figure("loop.vs_langgraph", took["ours"] / took["langgraph"], "x", "", "the same beside LangGraph"),
        Figure("loop.bus_vs_pydantic_ai", took["bus"] / rival, "x", "< 0.2", "tools of other processes"),
        Figure(
            "loop.bus_vs_pydantic_ai_plain", took["bus"] / plain, "x", "", "the same beside the plain one"
        ),
        Figure("loop.bus_turn_ms", took["bus"], "ms", "", "the same"),
        Figure("loop.bus_model_turn_ms", took["bus_model"], "ms", "", "the model in another process, too"),
        Figure("loop.bus_kept_turn_ms", took["bus_kept"], "ms", "", "on the disk at each decision point"),
        Figure("loop.four_slow_ms", slow_took["slow"], "ms", "< 58", "4 tools of 50 ms over the bus"),
        Figure("loop.first_call_ms", first, "ms", "< 2", "a call complete, until its provider has it"),
    ]


async def _saving(bus: Bus, store: Store, turns: int) -> list[Figure]:
    """What it takes to save the run of a turn, beside an append of as many bytes, in turns."""
    kept = StoredRuns(store, bus.peer.identity)
    run = executor(OverTheBus(bus), declared(), kept).open_run(BODY)
    await run.drive()
    keeper = run._checkpointer
    if keeper is None or not keeper.saved:
        raise RuntimeError("the run was not saved")
    data = Sealer(keeper.record, bus.peer.identity.runs_key()).seal(keeper.record)
    ways: dict[str, Callable[[], Awaitable[object]]] = {
        "save": keeper.save,
        "append": lambda: store.js.publish("rn.run.bench", data),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(max(1, _SAVES * turns // _TURNS)):
        for name, way in ways.items():
            began = time.perf_counter()
            await way()
            times[name].append((time.perf_counter() - began) * 1000)
    save, append = (statistics.median(found) for found in times.values())
    return [
        Figure("loop.save_ms", save, "ms", "< 1", "saving a run, until it is on the disk"),
        Figure("loop.append_ms", append, "ms", "", f"appending its {len(data)} bytes, for comparison"),
    ]


async def in_turns(
    ways: Mapping[str, Turn], turns: int, over_the_bus: Container[str] = ()
) -> dict[str, float]:
    """Milliseconds of one turn of each: the median over the rounds of each round's quickest batch.

    The ways take turns batch by batch, so that what else the machine does meets all alike; the quickest
    batch of a round is the one that it met least. Of those that stay in this process and wait for nothing the
    processor's time is counted, which is all the time they take where nobody else wants the processor; of
    those `over_the_bus` all the time that passes.
    """
    rounds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        gc.collect()
        batches: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(max(1, turns // _BATCH)):
            for name, turn in ways.items():
                clock = time.perf_counter if name in over_the_bus else time.process_time
                batches[name].append(await _batch(name, turn, clock))
        for name, found in batches.items():
            rounds[name].append(min(found))
    return {name: statistics.median(found) for name, found in rounds.items()}


async def _batch(name: str, turn: Turn, clock: Callable[[], float]) -> float:
    """Milliseconds of one of a few turns, after one that is not counted."""
    if await turn() != ANSWER:
        raise RuntimeError(f"{name} answered something else")
    began = clock()
    for _ in range(_BATCH):
        await turn()
    return (clock() - began) * 1000 / _BATCH


async def first_call(bus: Bus, turns: int) -> float:
    """Milliseconds from a complete call to its handler in another process, while the model still talks.

    The model goes on when it is known that the call is done.
    """
    port = OverTheBus(bus, CALLS[:1])
    runs = executor(port, declared())
    arrived: list[int] = []

    async def note(frame: dict[str, Any]) -> None:
        if frame["event"] == "tool_result":
            arrived.append(frame["data"]["meta"]["arrived_ns"])
            port.until.set()

    called = []
    for _ in range(turns):
        port.until = asyncio.Event()
        await runs.run_chat_with_tools(BODY, stream_to=note)
        called.append(port.first.called_ns)
    return statistics.median(late - early for early, late in zip(called, arrived, strict=True)) / 1e6
