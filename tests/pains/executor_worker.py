"""A process that asks a question and says yes to everything, for tests that kill it.

    python -m tests.pains.executor_worker HOME URL [before_sending]

Prints the run's id, and `here` where it is to be killed before it sends the effect.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from hearthnet.agent.persistence.jetstream_store import StoredRuns
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.tools.types import Approve, Decision, PendingApproval
from hearthnet.bus.bus import Bus
from hearthnet.bus.store import Store
from hearthnet.core.home import Home
from tests.pains.acting import QUESTION, tools


def say(word: str) -> None:
    """To the test."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def main(home: Home, url: str, point: str) -> None:
    """Asks, approves, and goes on until it is killed."""

    async def decide(pending: PendingApproval) -> Decision:
        say(pending.run)
        return Approve()

    async with await Bus.join(home, url, "worker") as bus, await Store.join(home, url, "worker") as store:
        if point == "before_sending":
            call = bus.call

            async def hang(capability: str, *given: Any, **more: Any) -> Any:
                if capability.startswith("market.post"):
                    say("here")
                    await asyncio.Event().wait()
                return await call(capability, *given, **more)

            bus.call = hang  # type: ignore[method-assign]
        runs = StoredRuns(store, bus.peer.identity)
        await ToolExecutor(bus, tools(), store=runs).run_chat_with_tools(QUESTION, decide=decide)


if __name__ == "__main__":
    asyncio.run(main(Home.resolve(Path(sys.argv[1])), sys.argv[2], (sys.argv[3:] or [""])[0]))
