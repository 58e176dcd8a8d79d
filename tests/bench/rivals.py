"""Those who are asked in turns by the benchmark of the bus: each answers in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.bench.bus_peers import BODY, QUERY, REPLY, REQUEST
from tests.helpers.mesh import Mesh
from tests.helpers.processes import child_environment

ROOT: Final = Path(__file__).resolve().parents[2]
Ask = Callable[[], Awaitable[Any]]


@dataclass(frozen=True)
class Rival:
    """One way to ask."""

    name: str
    ask: Ask


@contextlib.asynccontextmanager
async def answering(name: str, address: str, module: str = "tests.bench.bus_peers") -> AsyncIterator[str]:
    """Where `name` of `module` answers, if that is an address of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", module, name, address),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=child_environment(PYTHONPATH=ROOT),
        cwd=ROOT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        said = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().split()
        if not said:
            raise RuntimeError(f"{name} ended before it was ready")
        yield said[1] if len(said) > 1 else ""
    finally:
        process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 30)
        if process.returncode is None:
            process.kill()
            await process.wait()


@contextlib.asynccontextmanager
async def rivals(mesh: Mesh, plain: str) -> AsyncIterator[dict[str, Rival]]:
    """All of them by name: ours on `mesh`, where two nodes are asked and answer; the others on the server at
    `plain`, to which nobody logs in, or without one.
    """
    makers: dict[str, Callable[[], contextlib.AbstractAsyncContextManager[Rival]]] = {
        "floor": lambda: _floor(plain),
        "ours": lambda: _ours(mesh),
        "micro": lambda: _micro(plain),
        "faststream": lambda: _faststream(plain),
        "grpc": _grpc,
    }
    async with contextlib.AsyncExitStack() as stack:
        yield {name: await stack.enter_async_context(make()) for name, make in makers.items()}


@contextlib.asynccontextmanager
async def _ours(mesh: Mesh) -> AsyncIterator[Rival]:
    address = f"{mesh.home.path}={mesh.server.url}"
    async with answering("ours", address), await mesh.bus("bench", at=mesh.guest) as bus:
        yield Rival("ours", lambda: bus.call(QUERY, REQUEST))


@contextlib.asynccontextmanager
async def _floor(url: str) -> AsyncIterator[Rival]:
    import nats

    async with answering("floor", url):
        client = await nats.connect(url)
        yield Rival("floor", lambda: client.request("bench.call", BODY, timeout=30))
        await client.close()


@contextlib.asynccontextmanager
async def _micro(url: str) -> AsyncIterator[Rival]:
    import nats

    async with answering("micro", url):
        client = await nats.connect(url)
        yield Rival("micro", lambda: client.request("bench.micro", BODY, timeout=30))
        await client.close()


@contextlib.asynccontextmanager
async def _faststream(url: str) -> AsyncIterator[Rival]:
    from faststream.nats import NatsBroker

    async with answering("faststream", url), NatsBroker(url, logger=None) as broker:
        await broker.start()

        async def ask() -> None:
            reply = await broker.request(REQUEST, "bench.faststream", timeout=30)
            if await reply.decode() != REPLY:
                raise RuntimeError("FastStream answered something else")

        yield Rival("faststream", ask)


@contextlib.asynccontextmanager
async def _grpc() -> AsyncIterator[Rival]:
    import grpc

    async with answering("grpc", "") as (where), grpc.aio.insecure_channel(where) as channel:
        method = channel.unary_unary("/bench.Bench/Call")
        yield Rival("grpc", lambda: method(BODY))
