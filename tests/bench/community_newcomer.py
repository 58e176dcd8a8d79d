"""A newcomer that fetches the posts of a large community from another home, both in processes of their own.

`python -m tests.bench.community_newcomer URL HOME` hosts the market of HOME until its input ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import psutil

from hearthnet.bus.bus import Bus
from hearthnet.bus.session import keyring
from hearthnet.core.home import Home
from hearthnet_market import MarketService
from tests.bench.figures import Figure
from tests.helpers import large_community
from tests.helpers.mesh import Mesh, start_mesh, write_roster
from tests.helpers.processes import child_environment
from tests.helpers.waiting import wait_for

ROOT: Final = Path(__file__).resolve().parents[2]
_SECONDS: Final = 600
_ASK_SECONDS: Final = 0.25


def newcomer_figures(size: int, posts: int) -> list[Figure]:
    """How long a home without any takes until it lists `posts` posts of `size` members."""
    with tempfile.TemporaryDirectory(prefix="hn-bench-") as folder:
        return asyncio.run(_measure(Path(folder), size, posts))


async def _measure(folder: Path, size: int, posts: int) -> list[Figure]:
    mesh = await start_mesh(folder)
    try:
        members = large_community.members(size)
        held = keyring.load_roster(mesh.home.roster, mesh.identity.node_id)
        held = large_community.with_members(held, mesh.identity, members)
        write_roster(held, mesh.home, mesh.guest)
        mesh.let_in(held)
        async with await mesh.store() as store:
            await large_community.fill(
                store, held.community_id, large_community.posts(held.community_id, members, posts)
            )
        async with _home(mesh, mesh.home) as provider:
            server, began = psutil.Process(mesh.server.process.pid), time.perf_counter()
            before = [_cpu(one) for one in (provider, server)]
            async with _home(mesh, mesh.guest) as newcomer, await mesh.bus(at=mesh.guest) as bus:
                started = _cpu(newcomer)
                await _listed(bus, posts)
                took = time.perf_counter() - began
                cost = [
                    _cpu(newcomer) - started,
                    *(_cpu(one) - was for one, was in zip((provider, server), before, strict=True)),
                ]
    finally:
        mesh.server.stop()
    name = f"community.newcomer_{posts}"
    return [
        Figure(f"{name}_s", took, "s", "", f"a newcomer lists {posts:,} posts of {size:,} members"),
        Figure(f"{name}_per_s", posts / took, "1/s", "", "posts a second of it"),
        *(
            Figure(f"{name}_{who}_us", spent / posts * 1e6, "us", "", f"processor time for each post: {who}")
            for who, spent in zip(("taker", "giver", "server"), cost, strict=True)
        ),
    ]


async def _listed(bus: Bus, posts: int) -> None:
    """Wait until the home of `bus` lists that many; it is asked rarely: an answer costs it some ms."""

    async def are_listed() -> bool:
        request = {"params": {}, "input": {"limit": 1}}
        reply = await bus.call("market.list@1.0", request, node=bus.peer.node_id, timeout_seconds=30)
        listed = int(reply.output["max_lamport"]) >= posts
        if not listed:
            await asyncio.sleep(_ASK_SECONDS)
        return listed

    await wait_for(are_listed, _SECONDS, f"{posts} posts at the newcomer")


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextlib.asynccontextmanager
async def _home(mesh: Mesh, home: Home) -> AsyncIterator[psutil.Process]:
    """The market of `home` in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.bench.community_newcomer", mesh.server.url, str(home.path)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=child_environment(PYTHONPATH=ROOT),
        cwd=ROOT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if not await asyncio.wait_for(process.stdout.readline(), _SECONDS):
            raise RuntimeError("a process of the benchmark ended")
        yield psutil.Process(process.pid)
        process.stdin.close()
        await process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _main(url: str, folder: str) -> None:
    home = Home.resolve(Path(folder))
    part: Any = SimpleNamespace(home=home, server=SimpleNamespace(url=url))
    async with Mesh.hosting(part, MarketService(), at=home):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
