"""`python -m tests.bench.both_ends CALLS [IN_FLIGHT]`: both ends of so many calls in one process, over a real
server, for a profiler to count what they cost: `valgrind --tool=callgrind` counts instructions, which other
work on the machine does not change. Two runs of different length tell what a call takes.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from hearthnet.bus.bus import Bus
from tests.bench.bus_bench import IN_FLIGHT, UNLIMITED
from tests.bench.bus_peers import ANSWER, QUERY, REQUEST, BenchService
from tests.helpers.mesh import start_mesh


async def _ask(bus: Bus, numbers: list[int]) -> None:
    while numbers:
        numbers.pop()
        if (await bus.call(QUERY, REQUEST)).output != ANSWER:
            raise RuntimeError("another answer than was given")


async def run(calls: int, in_flight: int) -> float:
    """Processor seconds of `calls` calls, of which so many are always on their way."""
    with tempfile.TemporaryDirectory(prefix="hn-ends-") as folder:
        mesh = await start_mesh(Path(folder))
        mesh.home.config_file.write_text(UNLIMITED)
        try:
            async with mesh.hosting(BenchService()), await mesh.bus("ends", at=mesh.guest) as bus:
                await bus.call(QUERY, REQUEST)
                numbers, began = list(range(calls)), time.process_time()
                await asyncio.gather(*(_ask(bus, numbers) for _ in range(in_flight)))
                return time.process_time() - began
        finally:
            mesh.server.stop()


def main(calls: int, in_flight: int = IN_FLIGHT) -> None:
    """Prints what a call took."""
    seconds = asyncio.run(run(calls, in_flight))
    sys.stdout.write(f"{seconds / calls * 1e6:.1f} us of processor time a call\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
