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
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from hearthnet.bus.bus import Bus
from tests.bench.bus_bench import UNLIMITED
from tests.bench.figures import ROUNDS, Figure
from tests.bench.loop_ports import BODY, NoBus, OverTheBus, executor, ours
from tests.bench.loop_rivals import RIVALS, TOOLS, Turn
from tests.bench.loop_turn import ANSWER, CALLS, declared, declared_own, declared_slow, slow_calls
from tests.bench.rivals import answering
from tests.helpers.mesh import Mesh, start_mesh

_TURNS: Final = 40
_SLOW_TURNS: Final = 10
_PEERS: Final = "tests.bench.loop_peers"


def figures() -> list[Figure]:
    """Ratios of whole turns, and the times that have a goal of their own."""
    with tempfile.TemporaryDirectory(prefix="hn-bench-") as folder:
        return asyncio.run(measure(Path(folder), _TURNS))


async def measure(folder: Path, turns: int) -> list[Figure]:
    """The figures of so many turns a round, with a node in `folder`."""
    mesh = await start_mesh(folder)
    try:
        async with _providers(mesh), await mesh.bus("bench") as bus:
            return await _figures(bus, turns)
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


async def _figures(bus: Bus, turns: int) -> list[Figure]:
    ways = {name: make(TOOLS) for name, make in RIVALS.items()}
    ways["ours"] = ours(NoBus(), declared_own())
    ways["bus"] = ours(OverTheBus(bus), declared())
    ways["bus_model"] = ours(bus, declared())
    took = await in_turns(ways, turns)
    slow = ours(OverTheBus(bus, slow_calls()), declared_slow())
    slow_took = await in_turns({"slow": slow}, max(1, turns * _SLOW_TURNS // _TURNS))
    first = await first_call(bus, turns)
    rival, plain = took["pydantic_ai"], took["pydantic_ai_plain"]
    return [
        Figure("loop.pydantic_ai_ms", rival, "ms", "", "a turn with 4 calls: pydantic-ai, streamed"),
        Figure("loop.pydantic_ai_plain_ms", plain, "ms", "", "the same, not streamed"),
        Figure("loop.langgraph_ms", took["langgraph"], "ms", "", "LangGraph's prebuilt agent, not streamed"),
        Figure("loop.vs_pydantic_ai", took["ours"] / rival, "x", "< 0.0667", "tools of this process"),
        Figure("loop.vs_langgraph", took["ours"] / took["langgraph"], "x", "", "the same beside LangGraph"),
        Figure("loop.bus_vs_pydantic_ai", took["bus"] / rival, "x", "< 0.2", "tools of other processes"),
        Figure("loop.bus_turn_ms", took["bus"], "ms", "", "the same"),
        Figure("loop.bus_model_turn_ms", took["bus_model"], "ms", "", "the model in another process, too"),
        Figure("loop.four_slow_ms", slow_took["slow"], "ms", "< 58", "4 tools of 50 ms over the bus"),
        Figure("loop.first_call_ms", first, "ms", "< 2", "a call complete, until its provider has it"),
    ]


async def in_turns(ways: dict[str, Turn], turns: int) -> dict[str, float]:
    """Milliseconds of one turn of each: the median over the rounds of each round's median.

    Before each way's turns the garbage of the others is collected, and one turn is not counted.
    """
    rounds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, turn in ways.items():
            rounds[name].append(await _median(name, turn, turns))
    return {name: statistics.median(found) for name, found in rounds.items()}


async def _median(name: str, turn: Turn, turns: int) -> float:
    gc.collect()
    if await turn() != ANSWER:
        raise RuntimeError(f"{name} answered something else")
    times = []
    for _ in range(turns):
        began = time.perf_counter()
        await turn()
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


async def first_call(bus: Bus, turns: int) -> float:
    """Milliseconds from a complete call to its handler in another process, while the model still talks."""
    port = OverTheBus(bus, CALLS[:1], talks_on=True)
    runs = executor(port, declared())
    times = []
    for _ in range(turns):
        arrived = 0

        async def note(frame: dict[str, Any]) -> None:
            nonlocal arrived
            if frame["event"] == "tool_result":
                arrived = frame["data"]["meta"]["arrived_ns"]

        await runs.run_chat_with_tools(BODY, stream_to=note)
        if not port.first.called_ns < arrived < port.first.done_ns:
            raise RuntimeError("the call did not arrive while the model talked")
        times.append((arrived - port.first.called_ns) / 1e6)
    return statistics.median(times)
