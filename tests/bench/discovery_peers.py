"""One of the processes in which the benchmark of discovery has its connections:
`python -m tests.bench.discovery_peers URL HOME ...`, a connection for each HOME.

Reads one word a line and answers each with one line of JSON: `offer TOTAL` and `ask TOTAL`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Final

import msgspec

from hearthnet import Offer
from hearthnet.bus.bus import Bus, find_contract
from hearthnet.bus.routing.offer_watch import OfferWatch
from hearthnet.core.home import Home
from hearthnet.core.tasks import TaskSet
from hearthnet.service.hosting.active_offers import ActiveOffer
from hearthnet.service.hosting.announcer import Announcer

QUERY: Final = "rag.query@1.0"
DEADLINE_SECONDS: Final = 60


class Party:
    """The connections of this process, each of which offers the capability and follows it."""

    def __init__(self, url: str, homes: list[Home], leaving: contextlib.AsyncExitStack) -> None:
        self._url = url
        self._homes = homes
        self._leaving = leaving
        self._tasks = TaskSet()
        self._buses: list[Bus] = []
        self._announcers: list[Announcer] = []
        self._watches: list[OfferWatch] = []

    async def open(self) -> None:
        """Connects all of them, and has them follow."""
        self._leaving.push_async_callback(self._tasks.close)
        for home in self._homes:
            bus = await self._leaving.enter_async_context(await Bus.join(home, self._url, "bench"))
            announcer = Announcer(bus.peer, "bench", "1.0.0", self._tasks)
            await announcer.open([])
            self._watches.append(await self._leaving.enter_async_context(bus.watch(QUERY)))
            self._buses.append(bus)
            self._announcers.append(announcer)

    async def offer(self, total: int) -> list[int]:
        """Offers with all of them; how many offers each knows in the end."""
        contract = find_contract(QUERY)
        offer = Offer(capability=QUERY, params={"corpus": "bench"}, max_concurrent=8)
        offering = [announcer.offer([ActiveOffer(contract, offer)]) for announcer in self._announcers]
        knowing = [_until_known(watch, total) for watch in self._watches]
        known, _ = await asyncio.gather(asyncio.gather(*knowing), asyncio.gather(*offering))
        return known

    async def ask(self, total: int) -> list[int]:
        """Asks with the first of them who is there, until it was told of all; how many these are."""
        found: set[object] = set()
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(found) < total:
                found |= {view.key for view in await self._buses[0].offers(QUERY)}
        return [len(found)]


async def _until_known(watch: OfferWatch, total: int) -> int:
    known: set[object] = set()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(known) < total:
                change = await anext(watch)
                if change.event == "appeared":
                    known.add(change.view.key)
    return len(known)


async def _main(url: str, *folders: str) -> None:
    loop = asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as leaving:
        party = Party(url, [Home.resolve(Path(folder)) for folder in folders], leaving)
        await party.open()
        gc.collect()
        gc.freeze()  # so many communities in one heap are this benchmark's doing, and so is walking them
        _say({"ready": len(folders)})
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            word, total = line.split()
            work: Awaitable[list[int]] = getattr(party, word)(int(total))
            cpu = time.process_time()
            known = await work
            ended = time.monotonic()
            _say({"least": min(known), "ended": ended, "cpu": time.process_time() - cpu})


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(msgspec.json.encode(what).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
