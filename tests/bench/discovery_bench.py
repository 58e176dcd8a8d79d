"""200 connections on one machine that learn of each other.

Eight processes of 25 connections each, of eight nodes: the connections of a node lie in different processes.

See: docs/protocol/discovery.md#finds, docs/protocol/discovery.md#announcements.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.bench.figures import Figure
from tests.helpers.mesh import Mesh, start_mesh
from tests.helpers.processes import child_environment

ROOT: Final = Path(__file__).resolve().parents[2]
PROCESSES: Final = 8
EACH: Final = 25
TOTAL: Final = PROCESSES * EACH
_NODES: Final = 8
_OPEN_SECONDS: Final = 60


def figures() -> list[Figure]:
    """How long it takes, from the first offer until everybody knows of everybody."""
    with tempfile.TemporaryDirectory(prefix="hn-bench-") as folder:
        return asyncio.run(_measure(Path(folder)))


async def _measure(folder: Path) -> list[Figure]:
    names = [f"node{number}" for number in range(2, _NODES)]
    mesh = await start_mesh(folder, *names, stores=False)
    try:
        async with contextlib.AsyncExitStack() as leaving:
            parties = [await leaving.enter_async_context(_party(mesh, number)) for number in range(PROCESSES)]
            for party in parties:
                await _said(party)
            offered, offering = await _all(parties, "offer")
            asked, _ = await _all(parties, "ask")
    finally:
        mesh.server.stop()
    cost = offering / TOTAL**2 * 1e6
    return [
        Figure("discovery.200_s", offered, "s", "< 2", f"{TOTAL} connections offer, until each knows all"),
        Figure(
            "discovery.offer_us", cost, "us", "", "processor time of it for each offer that one learns of"
        ),
        Figure("discovery.asked_s", asked, "s", "< 2", f"{PROCESSES} of them ask all at once who is there"),
    ]


@contextlib.asynccontextmanager
async def _party(mesh: Mesh, number: int) -> AsyncIterator[asyncio.subprocess.Process]:
    homes = [mesh.home, mesh.guest, *mesh.others]
    for home in homes:
        home.run.mkdir(exist_ok=True)
    mine = [str(homes[(number + place) % len(homes)].path) for place in range(EACH)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.bench.discovery_peers", mesh.server.url, *mine),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=child_environment(PYTHONPATH=ROOT),
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _all(parties: list[asyncio.subprocess.Process], word: str) -> tuple[float, float]:
    """Seconds until the last of them is done, and of processor time that it took them together."""
    began = time.monotonic()
    for party in parties:
        assert party.stdin is not None
        party.stdin.write(f"{word} {TOTAL}\n".encode())
    answers = [await _said(party) for party in parties]
    least = min(answer["least"] for answer in answers)
    if least < TOTAL:
        raise RuntimeError(f"one of them learnt of {least} of {TOTAL} offers: {word}")
    return max(answer["ended"] for answer in answers) - began, sum(answer["cpu"] for answer in answers)


async def _said(party: asyncio.subprocess.Process) -> dict[str, Any]:
    assert party.stdout is not None
    line = await asyncio.wait_for(party.stdout.readline(), _OPEN_SECONDS)
    if not line:
        raise RuntimeError("a process of the benchmark ended")
    said: dict[str, Any] = msgspec.json.decode(line)
    return said
