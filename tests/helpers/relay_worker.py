"""A process of a node that asks another before it answers: `python relay_worker.py HOME OWN NEXT`.

Offers `rag.query` for the corpus OWN; calls it for the corpus NEXT first, where NEXT is not `-`.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import ClassVar

from hearthnet import Call, NodeContext, Offer, Reply, Service, capability
from hearthnet.core.home import Home
from hearthnet.service.hosting.main import serve
from hearthnet.service.hosting.status import Status
from tests.helpers.probe import QUERY, ROW, Anything


class Relay(Service):
    """One corpus, and perhaps the next."""

    name: ClassVar[str] = "relay"

    def __init__(self, own: str, next_one: str) -> None:
        super().__init__()
        self._own = own
        self._next = next_one

    async def start(self, node: NodeContext) -> None:
        """Keeps the bus."""
        self._bus = node.bus

    def offers(self) -> list[Offer]:
        """The one."""
        return [Offer(capability=QUERY, params={"corpus": self._own})]

    @capability(QUERY)
    async def query(self, call: Call[Anything, Anything]) -> Reply:
        """One row."""
        if self._next != "-":
            body = {"params": {"corpus": self._next}, "input": call.body["input"]}
            await self._bus.call(QUERY, body, run=call.run, hops=call.hops + 1)
        return Reply({"chunks": [ROW]}, {"corpus": self._own, "embedding_model": None})


async def _main(home: Home, own: str, next_one: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    service = Relay(own, next_one)
    # Two processes of one class are two services to whoever reads their traces.
    Relay.name = own
    await serve(service, home, Status(None), stop)


if __name__ == "__main__":
    asyncio.run(_main(Home(Path(sys.argv[1])), *sys.argv[2:]))
