"""The time that five homes need to be level again after a long cut, with posts made at each meanwhile.

`python -m tests.homes healing [--posts n] [--cut-seconds n]`, or `make homes ARGS=healing`: writes
build/healing.json. Exit status 1 where they took longer than `LEVEL_SECONDS`, or are not level.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

from hearthnet.core.canonical_json import canonical_json
from hearthnet.core.home import Home
from hearthnet.core.node_state import read_node_state
from tests.helpers.campaigns import BUILD
from tests.helpers.waiting import wait_for
from tests.homes.house import House
from tests.homes.town import Town, town

HOMES: Final = 5
LEVEL_SECONDS: Final = 5.0
_LONGEST_SECONDS: Final = 300.0
_LOOK_SECONDS: Final = 0.1
"""Pause between two looks at a home, which take part of its time."""
_PAGE: Final = 500
_WORDS: Final = "Bring it back dry, and ring twice. " * 6


class Healing(msgspec.Struct):
    """Seconds from the end of the cut until each home had all posts; processor seconds of its processes then.

    `load` is that of the computer for a minute, before and after.
    """

    posts: int
    cut_seconds: float
    level_seconds: list[float]
    processor_seconds: list[dict[str, float]]
    load: tuple[float, float]
    are_equal: bool


async def measure(folder: Path, posts: int, cut_seconds: float) -> Healing:
    """Cut all homes off from each other, make posts at each, heal, and wait until all are level."""
    async with town(folder, HOMES) as homes:
        await homes.post(0, "Before")
        await asyncio.gather(*(_wait_for(house, 1) for house in homes.houses))
        load, began = os.getloadavg()[0], time.monotonic()
        await homes.cut_off(*range(HOMES))
        await asyncio.gather(*(_make(homes, number, posts // HOMES) for number in range(HOMES)))
        await asyncio.sleep(max(0.0, began + cut_seconds - time.monotonic()))
        before = [_processor_seconds(house) for house in homes.houses]
        homes.network.heal()
        healed = time.monotonic()
        ends = await asyncio.gather(*(_wait_for(house, posts // HOMES * HOMES + 1) for house in homes.houses))
        used = [_processor_seconds(house) for house in homes.houses]
        pages = [await _all_posts(house) for house in homes.houses]
        return Healing(
            posts,
            cut_seconds,
            [round(end - healed, 2) for end in ends],
            [_less(now, then) for now, then in zip(used, before, strict=True)],
            (load, os.getloadavg()[0]),
            len({canonical_json(page) for page in pages}) == 1 and len(pages[0]) == posts // HOMES * HOMES,
        )


async def _make(homes: Town, number: int, count: int) -> None:
    for one in range(count):
        await homes.post(number, f"Home {number} post {one}", _WORDS)


async def _wait_for(house: House, events: int) -> float:
    """Wait until the log of a home has so many events, and return when it was."""

    async def has_all() -> bool:
        await asyncio.sleep(_LOOK_SECONDS)
        page = await house.call("market.list@1.0", limit=1)
        return bool(page["max_lamport"] >= events)

    await wait_for(has_all, _LONGEST_SECONDS, f"all posts at {house.name}")
    return time.monotonic()


async def _all_posts(house: House) -> list[dict[str, Any]]:
    """Return the posts made after the first event, without the number that each home gives them, by id."""
    found, after = dict[str, dict[str, Any]](), 1
    while True:
        page = await house.call("market.list@1.0", since_lamport=after, limit=_PAGE)
        found |= {post["event_id"]: {**post, "lamport": 0} for post in page["posts"]}
        if len(page["posts"]) < _PAGE:
            return [found[key] for key in sorted(found)]
        after = page["max_lamport"]


def _processor_seconds(house: House) -> dict[str, float]:
    """Return the processor time of the node's processes so far."""
    state = read_node_state(Home(house.shell.home))
    pids = {one.name: one.pid for one in state.services if one.pid} | {"server": state.server.pid}
    pids["supervisor"] = state.pid
    times = {name: psutil.Process(pid).cpu_times() for name, pid in pids.items()}
    return {name: one.user + one.system for name, one in times.items()}


def _less(now: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    return {name: round(seconds - before.get(name, 0.0), 2) for name, seconds in now.items()}


def main(arguments: Sequence[str]) -> int:
    """Measure once, print and write the result; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.homes healing")
    parser.add_argument("--posts", type=int, default=1_000)
    parser.add_argument("--cut-seconds", type=float, default=120.0)
    parser.add_argument("--result", type=Path, default=BUILD / "healing.json")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="healing-") as folder:
        found = asyncio.run(measure(Path(folder), options.posts, options.cut_seconds))
    encoded = msgspec.json.format(msgspec.json.encode(found), indent=2)
    options.result.parent.mkdir(parents=True, exist_ok=True)
    options.result.write_bytes(encoded + b"\n")
    sys.stdout.write(encoded.decode() + "\n")
    return 0 if found.are_equal and max(found.level_seconds) <= LEVEL_SECONDS else 1
