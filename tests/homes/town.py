"""Homes of one community on one network, all running."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from hearthnet.core.errors import HearthNetError
from hearthnet.core.ids import new_ulid
from tests.helpers.waiting import wait_for
from tests.homes.house import House
from tests.homes.network import Line, Network

_MOST_POSTS: Final = 500
"""Number of posts that one page of the market has."""
_LINK_SECONDS: Final = 60.0


@dataclass
class Town:
    """The homes by their numbers. The first one founded the community, and the links of the others lead to it
    until doors are open.
    """

    network: Network
    houses: list[House]

    async def cut_off(self, *numbers: int) -> None:
        """Cut homes off from all, and wait until both ends have given up the connections across the cut."""
        self.network.cut_off(*numbers)
        cut = {self.houses[number].address for number in numbers}
        others = [house for house in self.houses if house.address not in cut]

        def are_given_up() -> bool:
            within = all(house.peers() <= {house.address} for house in map(self.houses.__getitem__, numbers))
            return within and not any(cut & house.peers() for house in others)

        await wait_for(are_given_up, _LINK_SECONDS, "the links to be given up")

    async def open_doors(self, *numbers: int) -> None:
        """Open a door at each of these homes; the first one is that of the founder."""
        for number in numbers:
            house = self.houses[number]
            # The door before this one has restarted a server.
            await self.wait_until_joined(range(len(self.houses)))
            if number:
                self.houses[0].json("members", "promote", house.name, "trusted")
                await wait_for(house.is_trusted, _LINK_SECONDS, "the promotion")
            opened = await asyncio.to_thread(house.json, "door", "open")
            assert opened["state"] == "open", opened
        await self.wait_until_joined(range(len(self.houses)))

    async def wait_until_joined(self, numbers: Iterable[int]) -> None:
        """Wait until each of these homes has had an answer from each other one."""
        pairs = itertools.permutations(numbers, 2)
        await asyncio.gather(*(self._wait_for_answer(one, other) for one, other in pairs))

    async def _wait_for_answer(self, one: int, other: int) -> None:
        caller, node = self.houses[one], self.houses[other].node_id

        async def is_answered() -> bool:
            try:
                await caller.call("community.sync@1.0", node=node, seconds=1.0, heads={})
            except HearthNetError:
                return False
            return True

        await wait_for(is_answered, _LINK_SECONDS, f"an answer from {other} to {one}")

    async def post(self, number: int, title: str = "Egg", body: str = "One.") -> str:
        """Make a post at a home, and return its id."""
        given: dict[str, Any] = {"client_id": new_ulid(), "category": "offer", "title": title, "body": body}
        made = await self.houses[number].call("market.post@1.0", **given)
        return str(made["event_id"])

    async def posts(self, number: int) -> dict[str, dict[str, Any]]:
        """The posts that a home lists, by their ids, without the number that each home gives them."""
        listed = (await self.houses[number].call("market.list@1.0", limit=_MOST_POSTS))["posts"]
        return {post.pop("event_id"): post for post in listed if post.pop("lamport")}


@contextlib.asynccontextmanager
async def town(
    folder: Path,
    count: int,
    slow: Mapping[int, Line] = MappingProxyType({}),
    *,
    free: int = 0,
    doors: Sequence[int] = (),
) -> AsyncIterator[Town]:
    """Run `count` homes, which the first one has let in, for the block.

    `slow` is as of `Network`, which has `free` places more; `doors` are the homes that open one, the first
    home before all others.
    """
    async with contextlib.AsyncExitStack() as running:
        network = running.enter_context(Network(count + free, slow))
        houses = [
            House(place, folder, f"Home{number}") for number, place in enumerate(network.places[:count])
        ]
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
        homes = Town(network, houses)
        if doors:
            await homes.open_doors(*doors)
        yield homes
