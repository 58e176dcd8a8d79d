"""Homes of one community on one network, all running."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tests.helpers.waiting import wait_for
from tests.homes.house import House
from tests.homes.network import Line, Network

MOST_POSTS: Final = 500
"""Number of posts that one page of the market has."""


@dataclass
class Town:
    """The homes by their numbers; the first one founded the community, and the others' links lead to it."""

    network: Network
    houses: list[House]

    async def cut_off(self, *numbers: int) -> None:
        """Cut homes other than the first off from all, and wait until the first has given up their links."""
        self.network.cut_off(*numbers)
        left = len(self.houses) - 1 - len(numbers)
        await wait_for(lambda: self._links() <= left, 60, "the links to be given up")

    async def posts(self, number: int) -> dict[str, dict[str, Any]]:
        """The posts that a home lists, by their ids, without the number that each home gives them."""
        listed = (await self.houses[number].call("market.list@1.0", limit=MOST_POSTS))["posts"]
        return {post.pop("event_id"): post for post in listed if post.pop("lamport")}

    def _links(self) -> int:
        """How many links of other homes the first one's server has."""
        log = (self.houses[0].shell.home / "logs" / "nats-server.log").read_text()
        return log.count("Leafnode connection created") - log.count("Leafnode connection closed")


@contextlib.asynccontextmanager
async def town(
    folder: Path, count: int, slow: Mapping[int, Line] = MappingProxyType({})
) -> AsyncIterator[Town]:
    """Run `count` homes, which the first one has let in, for the block; `slow` as of `Network`."""
    async with contextlib.AsyncExitStack() as running:
        network = running.enter_context(Network(count, slow))
        houses = [House(place, folder, f"Home{number}") for number, place in enumerate(network.places)]
        for house in houses:
            running.push_async_callback(house.close)
        first, *others = houses
        first.begin()
        await first.wait_until_ready()
        for house in others:
            house.join(first)
            house.begin()
        for house in others:
            await house.wait_until_ready()
        yield Town(network, houses)
