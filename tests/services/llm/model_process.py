"""A model's server as a process of its own: `python -m tests.services.llm.model_process MEET`.

It holds the first MEET answers until so many requests are there at once. Its first line says where it is; it
ends with its input. GET /peak tells how many requests were there at once at most.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from tests.services.llm.model_server import Answer, ModelServer, page, saying


async def main(meet: int) -> None:
    """Serves until the input ends."""
    open_now = peak = 0
    all_there = asyncio.Event()

    async def answer(_request: dict[str, Any]) -> Answer:
        nonlocal open_now, peak
        open_now += 1
        peak = max(peak, open_now)
        if open_now >= meet:
            all_there.set()
        await all_there.wait()
        open_now -= 1
        return saying()

    async def told(_request: dict[str, Any]) -> Answer:
        return page({"peak": peak})

    async with ModelServer(**{"far-1": {}}) as server:
        server.routes |= {"/v1/chat/completions": answer, "/peak": told}
        sys.stdout.write(server.url + "\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
