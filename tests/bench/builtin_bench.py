"""What the model in the box loses on its way to the caller, and how soon its service is ready."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from hearthnet.bus.bus import Bus
from hearthnet.core.node_state import ServiceState
from hearthnet.service.hosting.status import STATUS_VARIABLE
from hearthnet_llm import LlmService
from hearthnet_llm.builtin.backend import BuiltinBackend, _drawing
from hearthnet_llm.builtin.engine import Chunk, Engine
from hearthnet_llm.builtin.model_file import BUILT_IN
from hearthnet_llm.interface.frames import Done, TextDelta
from hearthnet_llm.interface.request import ChatRequest
from tests.bench.figures import Figure
from tests.helpers.mesh import Mesh, start_mesh
from tests.helpers.waiting import wait_for

_TURNS: Final = 24
_STARTS: Final = 3
_TOKENS: Final = 48
_ASKED: Final[dict[str, Any]] = {
    "messages": [{"role": "user", "content": "Tell a long story about a mill."}],
    "max_tokens": _TOKENS,
    "temperature": 0,
}


class _Speed(NamedTuple):
    """One answer: its tokens in a second after the first one, and the CPU of the event loop in us a token."""

    tokens_per_second: float
    cpu: float


def figures() -> list[Figure]:
    """The engine read directly, our frames, and the stream over the bus, in turns on one engine."""
    with tempfile.TemporaryDirectory(prefix="hn-bench-") as folder:
        return asyncio.run(_figures(Path(folder)))


async def _figures(folder: Path) -> list[Figure]:
    mesh = await start_mesh(folder, stores=False)
    try:
        starts = [await _seconds_to_ready(mesh) for _ in range(_STARTS)]
        found = await _streams(mesh)
    finally:
        mesh.server.stop()
    start = Figure(
        "llm.start_s", statistics.median(starts), "s", "< 2", "the service's process until it is ready"
    )
    return [*found, start]


async def _streams(mesh: Mesh) -> list[Figure]:
    llm = LlmService()
    async with mesh.hosting(llm), await mesh.bus() as bus:
        engine = await _warmed(llm)
        ways: dict[str, Callable[[], Awaitable[_Speed]]] = {
            "engine": lambda: _engine(engine),
            "backend": lambda: _backend(engine),
            "bus": lambda: _bus(bus),
        }
        runs = [{name: await way() for name, way in ways.items()} for _ in range(_TURNS)]

    # The quickest of many: what else the machine does meets all alike, and these least.
    best = {name: max(run[name].tokens_per_second for run in runs) for name in ways}
    frames, stream = ((best["engine"] / best[name] - 1) * 100 for name in ("backend", "bus"))
    cpu = statistics.median(run["bus"].cpu for run in runs)
    return [
        Figure("llm.builtin.engine_tokens_s", best["engine"], "tokens/s", "", "the engine, read directly"),
        Figure("llm.builtin.frames_overhead", frames, "%", "< 5", "our frames beside it"),
        Figure("llm.builtin.stream_overhead", stream, "%", "< 5", "the stream over the bus beside it"),
        Figure("llm.builtin.loop_us", cpu, "us", "", "CPU of both ends' event loop a token of that stream"),
    ]


async def _warmed(llm: LlmService) -> Engine:
    """The service's engine once it has read what it reads by itself."""
    await wait_for(lambda: llm._boxed is not None and llm._boxed.warmed, 60)
    assert llm._boxed is not None
    assert llm._boxed.engine is not None
    return llm._boxed.engine


async def _engine(engine: Engine) -> _Speed:
    """On a thread, as the service asks it, with a reader that only looks at its watch."""
    times: list[float] = []

    def heard(chunk: Chunk) -> bool:
        choice = chunk["choices"][0]
        if choice["delta"].get("content") or choice["finish_reason"]:
            times.append(time.perf_counter())
        return False

    server: Any = engine._server
    drawing = _drawing(msgspec.convert(_ASKED, ChatRequest), 0)  # with the defaults, which cost as well
    body = {**_ASKED, "top_p": drawing["top_p"], "stream": True, "return_progress": True}
    await asyncio.to_thread(server.handle_chat_completions, body, heard)
    return _Speed((len(times) - 2) / (times[-1] - times[0]), 0.0)


async def _backend(engine: Engine) -> _Speed:
    request = msgspec.convert(_ASKED, ChatRequest)
    began, cpu = 0.0, time.thread_time()
    tokens = 0
    async with aclosing(BuiltinBackend(engine, BUILT_IN).stream(request)) as frames:
        async for frame in frames:
            began = began or (time.perf_counter() if isinstance(frame, TextDelta) else 0.0)
            tokens = frame.tokens_out if isinstance(frame, Done) else 0
    return _Speed((tokens - 1) / (time.perf_counter() - began), (time.thread_time() - cpu) / tokens * 1e6)


async def _bus(bus: Bus) -> _Speed:
    began, cpu = 0.0, time.thread_time()
    tokens = 0
    async with bus.stream("llm.chat@2.0", {"params": {}, "input": _ASKED}) as stream:
        async for frame in stream:
            began = began or (time.perf_counter() if frame.event == "token" else 0.0)
            tokens = int(frame.data["tokens_out"]) if frame.event == "done" else 0
    return _Speed((tokens - 1) / (time.perf_counter() - began), (time.thread_time() - cpu) / tokens * 1e6)


async def _seconds_to_ready(mesh: Mesh) -> float:
    """From the start of the process, as the supervisor starts it, to its word that it is ready."""
    command = (sys.executable, "-m", "hearthnet.service.hosting.main", "llm", "--home", str(mesh.home.path))
    reading, writing = os.pipe()
    environment = os.environ | {STATUS_VARIABLE: str(writing)}
    state = ServiceState("llm", None, "starting", 0, None, (), 0)
    with mesh.published(state), os.fdopen(reading, "rb") as said:
        began = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, pass_fds=[writing], stderr=subprocess.DEVNULL
        )
        os.close(writing)
        try:
            await asyncio.to_thread(_until_ready, said)
            return time.perf_counter() - began
        finally:
            process.terminate()
            await process.wait()


def _until_ready(said: Any) -> None:
    for line in said:
        if json.loads(line)["state"] == "ready":
            return
    raise AssertionError("the service ended before it was ready")
