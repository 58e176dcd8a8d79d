"""All callers together: their processes, the orders to them, and what the node's processes hold meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from hearthnet.bus.bus import Bus
from hearthnet.contracts.registry import contracts
from hearthnet.core.home import Home
from tests.helpers.full_house import FullHouse, memory_kb, reads
from tests.helpers.processes import child_environment
from tests.helpers.samples import sample
from tests.load.callers import GRACE_SECONDS
from tests.load.figures import Order, Outcome, Tally, memory, outcome

ROOT: Final = Path(__file__).resolve().parents[2]
_OWN: Final = frozenset({"community.door.check@1.0", "llm.tools.call@1.0"})
"""What plain members may not call for themselves."""
_LOOK_SECONDS: Final = 0.5
_LINE: Final = 64 * 1024 * 1024


@dataclass
class Crowd:
    """The processes of callers: of members, and of the node itself for what it keeps to itself."""

    house: FullHouse
    members: list[asyncio.subprocess.Process]
    own: list[asyncio.subprocess.Process]
    seen: dict[str, list[float]] = field(default_factory=dict)

    async def capabilities(self) -> list[str]:
        """What the node offers and changes nothing."""
        async with await Bus.join(self.house.home, self.house.url, "crowd") as bus:
            return reads(str(view.capability) for view in await self.house.offers(bus))

    async def press(
        self, capability: str, callers: int, seconds: float, through: str, most: int = 0
    ) -> Outcome:
        """Has `callers` ask for `capability` at once."""
        contract = contracts().get(capability)
        body = msgspec.Raw(msgspec.json.encode(sample(contract, self.house.stock)))
        processes = self.own if contract.trust_required == "self" or contract.id in _OWN else self.members
        shares = [len(range(number, callers, len(processes))) for number in range(len(processes))]
        self.seen = {name: [] for name in self.house.processes}
        looking = asyncio.create_task(self._look())
        began = time.monotonic()
        try:
            tallies = await asyncio.gather(
                *(
                    _carry_out(process, Order(capability, share, seconds, most, through, body))
                    for process, share in zip(processes, shares, strict=True)
                    if share
                )
            )
        finally:
            looking.cancel()
        took = time.monotonic() - began
        held = {name: memory(seen) for name, seen in self.seen.items() if seen}
        return outcome(Order(capability, callers, seconds, most, through, body), took, tallies, held)

    async def _look(self) -> None:
        while True:
            for name, pid in self.house.processes.items():
                self.seen.setdefault(name, []).append(memory_kb(pid))
            await asyncio.sleep(_LOOK_SECONDS)


@contextlib.asynccontextmanager
async def crowd(house: FullHouse) -> AsyncIterator[Crowd]:
    """A process of callers for each member of `house`, and one of its own."""
    async with contextlib.AsyncExitStack() as stack:
        homes = list(house.neighbourhood.members.values())
        members = [await stack.enter_async_context(_process(home, house.url)) for home in homes]
        own = await stack.enter_async_context(_process(house.home, house.url))
        yield Crowd(house, members, [own])


@contextlib.asynccontextmanager
async def _process(home: Home, url: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.load.callers", str(home.path), url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=child_environment(PYTHONPATH=ROOT),
        cwd=ROOT,
        limit=_LINE,
    )
    assert process.stdin is not None
    try:
        await _line(process, 60)
        yield process
    finally:
        process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 30)
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _carry_out(process: asyncio.subprocess.Process, order: Order) -> Tally:
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(order) + b"\n")
    line = await _line(process, order.seconds + 2 * GRACE_SECONDS)
    return msgspec.json.decode(line, type=Tally)


async def _line(process: asyncio.subprocess.Process, seconds: float) -> bytes:
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), seconds)
    if not line:
        raise RuntimeError("a process of callers ended")
    return line
