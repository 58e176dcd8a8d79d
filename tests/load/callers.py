"""A process of callers: `python -m tests.load.callers HOME URL` reads one order a line and answers each
with what its callers met with.

A caller asks, and asks again when it was told to come back, not before the time that it was told.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from hearthnet.bus.bus import Bus, find_contract
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.contracts.contract import Contract
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from tests.helpers.direct import ask
from tests.load.figures import REFUSAL, Order, Tally

GRACE_SECONDS: Final = 60.0
"""So long after the end those who wait may still get through."""
Asking = Callable[[], Awaitable[Any]]


async def load(bus: Bus, order: Order) -> Tally:
    """Carries out `order`."""
    tally, loop = Tally(), asyncio.get_running_loop()
    asking = await _asking(bus, order)
    until = loop.time() + order.seconds

    async def caller() -> None:
        made = 0
        while loop.time() < until and (not order.most or made < order.most):
            made += 1
            await served(asking, tally, until + GRACE_SECONDS)

    await asyncio.gather(*(caller() for _ in range(order.callers)))
    return tally


async def _asking(bus: Bus, order: Order) -> Asking:
    """One attempt: past the own program's queue straight to the process, or as any program of the bus."""
    contract, body = find_contract(order.capability), msgspec.json.decode(order.body)
    if order.through == "bus":
        return lambda: bus.call(order.capability, body)
    views = await _fitting(bus, contract, body)
    return lambda: ask(bus, random.choice(views), contract, body)


async def _fitting(bus: Bus, contract: Contract, body: dict[str, Any]) -> list[OfferView]:
    """Who may be asked. On a machine that is busy, who offers does not always say so in time."""
    clock = asyncio.get_running_loop().time
    until = clock() + GRACE_SECONDS
    while clock() < until:
        views = [view for view in await bus.offers(contract.id) if contract.fits(body, view.offer.params)]
        if views:
            return views
    raise RuntimeError(f"nobody offers {contract.id} for the sample")


async def served(asking: Asking, tally: Tally, last: float) -> None:
    """Asks until it is answered; gives up at the loop time `last`."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        try:
            await asking()
        except HearthNetError as error:
            if error.code != REFUSAL or error.retry_after_ms is None:
                tally.fail(error.code, error.message)
                return
            tally.refused += 1
            await asyncio.sleep(error.retry_after_ms / 1000 * random.uniform(1.0, 2.0))
            if loop.time() > last:
                tally.unserved += 1
                return
        else:
            tally.answered += 1
            tally.took_ms.append((loop.time() - began) * 1000)
            return


async def main(home: Path, url: str) -> None:
    """Orders from standard input until it ends."""
    loop = asyncio.get_running_loop()
    async with await Bus.join(Home.resolve(home), url, "callers") as bus:
        _say({"ready": True})
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            _say(await load(bus, msgspec.json.decode(line, type=Order)))


def _say(what: Any) -> None:
    sys.stdout.write(msgspec.json.encode(what).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
