"""Processes whose clock is off, by libfaketime, and one of them: a home on the bus of a test.

python -m tests.helpers.off_clock HOME URL HOST
"""

from __future__ import annotations

import asyncio
import glob
import json
import os
import sys
import time
from pathlib import Path

from hearthnet import HearthNetError
from hearthnet.core import ids
from hearthnet.core.home import Home
from hearthnet.core.times import CLOCK, now_ms
from hearthnet.service.community.clock_keeper import ClockKeeper
from tests.helpers.leaving import leave_out
from tests.helpers.mesh import GuestBus
from tests.helpers.probe import POST, QUERY, post, query
from tests.helpers.residents import Resident


def off_by(seconds: int) -> dict[str, str]:
    """Return an environment whose processes see a clock that is ahead by `seconds`; timers are right."""
    found = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
    if not found:
        leave_out("libfaketime is not installed: make system-deps")
    more = {"LD_PRELOAD": found[0], "FAKETIME": f"{seconds:+d}", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    return {**os.environ, **more, "DONT_FAKE_MONOTONIC": "1"}


async def _take_part(home: Home, url: str, host: str) -> dict[str, object]:
    """Compare clocks, then read and post at `host` under a token and an approval; return what came of it."""
    CLOCK.follow(home)
    before = now_ms()
    async with await GuestBus.at(host, home, url, "off") as bus:
        keeper = ClockKeeper(bus.peer)
        decision = await keeper.compare(0.5)
        page: dict[str, object] = {
            "system": time.time_ns() // 1_000_000,
            "before": before,
            "now": now_ms(),
            "homes": decision.homes,
        }
        lent = Resident(bus.peer.identity, bus, "owner")
        lent.provider = host
        for name, params, given in (
            (QUERY, query()["params"], query()["input"]),
            (POST, {}, post(ids.new_ulid())["input"]),
        ):
            try:
                await lent.call(name, params, **given)
                page[name] = "ok"
            except HearthNetError as error:
                page[name] = f"{error.code}: {error.message}"
    return page


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_take_part(Home(Path(sys.argv[1])), *sys.argv[2:4]))))  # noqa: T201
