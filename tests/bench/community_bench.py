"""A community of 50, 200 and 1,000 members: what its size costs a home (docs/decisions/0234).

The members' events are written with their keys; light peers tell and offer as their homes would.

See: docs/protocol/community.md, docs/protocol/log.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hearthnet.bus.bus import Bus
from hearthnet.bus.session import keyring
from hearthnet.bus.store import Store
from hearthnet.core.home import Home
from hearthnet.core.node_state import read_node_state
from hearthnet.protocol import subjects
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.bench.community_newcomer import newcomer_figures
from tests.bench.community_peers import QUERY
from tests.bench.figures import Figure
from tests.helpers import large_community
from tests.helpers.full_house import memory_kb
from tests.helpers.members import take_in
from tests.helpers.mesh import Mesh, start_mesh, write_roster
from tests.helpers.neighbourhood import settle_in
from tests.helpers.processes import child_environment
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for

ROOT: Final = Path(__file__).resolve().parents[2]
SIZES: Final = (50, 200, 1_000)
_POSTS: Final = 10_000
_SETTLE_SECONDS: Final = 25
"""Every home has told at least once by then."""
_HEAR_SECONDS: Final = 40
_SERVICES: Final = ("auth", "market", "mesh")
_MB: Final = 1_000_000


def figures() -> list[Figure]:
    """Of each size; then a home of one beside homes of the largest community, and a newcomer."""
    found = [figure for size in SIZES for figure in size_figures(size)]
    return [*found, *memory_figures(SIZES[-1], _POSTS), *newcomer_figures(SIZES[-1], _POSTS)]


def size_figures(size: int) -> list[Figure]:
    """What a roster of `size` members and their homes cost one home."""
    with tempfile.TemporaryDirectory(prefix="hn-bench-") as folder:
        return asyncio.run(_of_size(Path(folder), size))


async def _of_size(folder: Path, size: int) -> list[Figure]:
    mesh = await start_mesh(folder, stores=False)
    name = f"community.{size}"
    try:
        held = keyring.load_roster(mesh.home.roster, mesh.identity.node_id)
        held = large_community.with_members(held, mesh.identity, large_community.members(size))
        write_roster(held, mesh.home)
        loading = _cpu(lambda: _load(mesh.home, mesh.identity))
        deriving = _cpu(lambda: rosters.derive(held.community_id, held.events))
        newcomer = Identity.generate()
        joining = _cpu(lambda: take_in(held, mesh.identity, newcomer))
        mesh.let_in(held)
        larger = take_in(held, mesh.identity, newcomer)
        began = time.perf_counter()
        await asyncio.to_thread(mesh.let_in, larger)
        reloading = time.perf_counter() - began
        config = len(mesh.server.config.read_bytes())
        shared = folder / "roster.json"
        shared.write_bytes(rosters.encode(rosters.seal(held, large_community.key("bench"))))
        async with _peers(mesh, shared, size) as say:
            finding = await _find(mesh, say, size)
            told, bytes_told = await _hear(mesh, say)
    finally:
        mesh.server.stop()
    heads = [
        Figure(f"{name}.heads_min", told, "/min", "", "heads of other homes that reach one home"),
        Figure(f"{name}.heads_kb_s", bytes_told / 1000, "KB/s", "< 5", "their bytes"),
    ]
    return [
        Figure(f"{name}.roster_mb", len(held_file(mesh.home)) / _MB, "MB", "", f"file of {size} members"),
        Figure(f"{name}.load_ms", loading * 1000, "ms", "", "a process loads it, CPU"),
        Figure(f"{name}.verify_ms", deriving * 1000, "ms", "", "a newcomer verifies all of it, CPU"),
        Figure(f"{name}.join_ms", joining * 1000, "ms", "", "one more is invited, asks and is let in, CPU"),
        Figure(f"{name}.config_mb", config / _MB, "MB", "", "configuration of the home's server"),
        Figure(f"{name}.reload_ms", reloading * 1000, "ms", "", "the server takes it with one member more"),
        Figure(f"{name}.found_ms", finding * 1000, "ms", "", "one asks who offers, until all have answered"),
        *heads,
    ]


def held_file(home: Home) -> bytes:
    """The roster as a home stores it."""
    return home.roster.read_bytes()


def _load(home: Home, identity: Identity) -> object:
    roster = keyring.load_roster(home.roster, identity.node_id)
    return roster.history, roster.folded


def _cpu(work: Callable[[], object]) -> float:
    """The least processor time of three runs."""
    took = []
    for _ in range(3):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return min(took)


@contextlib.asynccontextmanager
async def _peers(mesh: Mesh, shared: Path, size: int) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.bench.community_peers", mesh.server.url, str(shared), str(size)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=child_environment(PYTHONPATH=ROOT),
        cwd=ROOT,
    )
    try:
        await _done(process)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _told(process: asyncio.subprocess.Process, word: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{word}\n".encode())
    await _done(process)


async def _done(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    if not await asyncio.wait_for(process.stdout.readline(), 120):
        raise RuntimeError("a process of the benchmark ended")


async def _find(mesh: Mesh, peers: asyncio.subprocess.Process, size: int) -> float:
    """Seconds until one home has the offers of all others, which it has not heard before."""
    await _told(peers, "offer")
    async with await mesh.bus() as bus:
        began, found = time.perf_counter(), set[object]()
        async with asyncio.timeout(60):
            while len(found) < size:
                found |= {view.key for view in await bus.offers(QUERY)}
        return time.perf_counter() - began


async def _hear(mesh: Mesh, peers: asyncio.subprocess.Process) -> tuple[float, float]:
    """Announcements of heads a minute that reach one home, and their bytes a second, once all have begun."""
    sizes: list[int] = []

    def on_heads(subject: str, data: bytes, absent: bool) -> None:
        sizes.append(len(subject) + len(data))

    async with await mesh.bus() as bus:
        for event_type in ("community.heads", "community.heads.market"):
            await bus.peer.link.subscribe(subjects.events_of(event_type), on_heads)
        await _told(peers, "tell")
        await asyncio.sleep(_SETTLE_SECONDS)
        sizes.clear()
        await asyncio.sleep(_HEAR_SECONDS)
        return len(sizes) * 60 / _HEAR_SECONDS, sum(sizes) / _HEAR_SECONDS


@dataclass(frozen=True)
class Taken:
    """What a running home takes, in MB by process, and how long it took until it was ready."""

    ready_seconds: float
    memory: dict[str, float]


def memory_figures(size: int, posts: int) -> list[Figure]:
    """What roster and log of `size` members add to the processes of a home, beside a home of one."""
    with tempfile.TemporaryDirectory(prefix="hn-bench-") as folder:
        alone = _taken(Path(folder) / "alone", 0, 0)
        many = _taken(Path(folder) / "many", size, 0)
        full = _taken(Path(folder) / "full", size, posts)
    each = [
        Figure(
            f"community.{size}.{name}_mb", many.memory[name] - alone.memory[name], "MB", "", f"of it, {name}"
        )
        for name in alone.memory
    ]
    total = {name: sum(one.memory.values()) for name, one in (("1", alone), ("n", many), ("p", full))}
    return [
        Figure(f"community.{size}.ready_s", many.ready_seconds, "s", "", "`hearthnet up` until it is ready"),
        Figure("community.1.ready_s", alone.ready_seconds, "s", "", "the same, alone"),
        Figure(f"community.{size}.memory_mb", total["n"] - total["1"], "MB", "< 40", "the roster adds"),
        *each,
        Figure(
            f"community.{size}.log_mb",
            total["p"] - total["n"],
            "MB",
            "",
            f"{posts:,} posts add to that",
        ),
    ]


def _taken(folder: Path, size: int, posts: int) -> Taken:
    def past(roster: Roster, keys: object) -> Roster:
        founder = keyring.load_identity(Home.resolve(folder / "home").device_key)
        return large_community.with_members(roster, founder, large_community.members(size))

    home = settle_in(folder, services=_SERVICES, past=past).founder
    began = time.perf_counter()
    with Shell(home.path).node() as state:
        ready = time.perf_counter() - began
        url = str(state["server"]["url"])
        if posts:
            asyncio.run(_posted(home, url, size, posts))
        asyncio.run(asyncio.sleep(5))
        return Taken(ready, {name: memory_kb(pid) / 1000 for name, pid in _processes(home)})


async def _posted(home: Home, url: str, size: int, posts: int) -> None:
    """Put `posts` into the log of a running home, and wait until it lists them."""
    async with await Store.join(home, url, "bench") as store, await Bus.join(home, url, "bench") as bus:
        community = bus.peer.community
        written = large_community.posts(community, large_community.members(size), posts)
        await large_community.fill(store, community, written)

        async def are_listed() -> bool:
            reply = await bus.call("market.list@1.0", {"params": {}, "input": {"limit": 1}})
            return int(reply.output["max_lamport"]) >= posts

        await wait_for(are_listed, 120, f"{posts} posts")


def _processes(home: Home) -> Iterator[tuple[str, int]]:
    state = read_node_state(home)
    yield "supervisor", state.pid
    yield "nats-server", state.server.pid
    for service in state.services:
        if service.pid is not None:
            yield service.name, service.pid
