"""Homes on lines that are cut without a sign or slow, and homes that are killed or full as they catch up."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import FULL_BYTES
from hearthnet.core.ids import new_ulid
from tests.helpers.small_disk import fill, small_disk
from tests.helpers.waiting import wait_for
from tests.homes.loans import shown_states
from tests.homes.network import Line, need_namespaces
from tests.homes.town import Town, town

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]
SLOW = Line(delay_ms=150, loss=0.05)
"""300 ms there and back, as over a satellite or a radio link."""
LEVEL_SECONDS = 60.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def homes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Town]:
    """Three homes; the second one has a small disk, the third one's line is slow and loses packets."""
    need_namespaces()
    folder = tmp_path_factory.mktemp("town")
    with small_disk(folder / "Home1") as mount:
        mount("size=200m")
        async with town(folder, 3, {2: SLOW}) as homes:
            yield homes


async def post(homes: Town, number: int, count: int) -> set[str]:
    """The ids of new posts of a home."""
    return {await homes.post(number) for _ in range(count)}


async def until_level(homes: Town, expected: set[str]) -> None:
    """Wait until all homes list the same posts, which are `expected`."""

    async def are_level() -> bool:
        pages = await asyncio.gather(*map(homes.posts, range(3)))
        return pages[0].keys() == expected and pages[0] == pages[1] == pages[2]

    await wait_for(are_level, LEVEL_SECONDS, "all homes to be level")


async def step(homes: Town, number: int, capability: str, post: str, **given: str) -> str:
    """Take a step of lending at a home, and return the id of its event."""
    given = {"client_id": new_ulid(), "event_id": post, **given}
    made = await homes.houses[number].call(capability, **given)  # type: ignore[arg-type]
    return str(made["event_id"])


@pytest.mark.req("HOMES-2", "HOMES-3", "HOMES-7")
async def test_posts_of_homes_that_were_cut_off_are_everywhere_after_it(homes: Town) -> None:
    # The third home has joined over its line.
    ladder = await homes.post(0, "Ladder")
    before = set(await homes.posts(0))
    await until_level(homes, before)
    await homes.cut_off(1, 2)
    asked = [await step(homes, number, "market.reserve@1.0", ladder, step="ask") for number in (1, 2)]
    made = [await post(homes, number, 5) for number in range(3)]
    for number in range(3):
        assert set(await homes.posts(number)) == before | made[number]
    homes.network.heal()
    await until_level(homes, before.union(*made))
    await step(homes, 0, "market.lend@1.0", ladder, step="promise", reservation=asked[0])
    with pytest.raises(HearthNetError, match="it is promised"):
        await step(homes, 0, "market.lend@1.0", ladder, step="promise", reservation=asked[1])
    await until_level(homes, before.union(*made))
    assert shown_states((await homes.posts(2))[ladder]) == {asked[0]: "promised", asked[1]: "asked"}


@pytest.mark.req("GATHER-13")
async def test_a_call_to_a_home_that_fell_silent_ends_before_its_deadline(homes: Town) -> None:
    """Its deadline is 10 s, and the servers' own pings take 12 at least."""
    at = homes.houses[0].json("status")["node_id"]
    await homes.houses[1].call("market.list@1.0", node=at)
    homes.network.cut_off(1)
    with pytest.raises(HearthNetError) as raised:
        await homes.houses[1].call("market.list@1.0", node=at)
    homes.network.heal()
    assert raised.value.code == "partition"


@pytest.mark.req("HOMES-4")
async def test_a_home_that_is_killed_as_it_catches_up_has_everything_once(homes: Town) -> None:
    late = homes.houses[2]
    await late.kill_node()
    before = set(await homes.posts(0))
    made = await post(homes, 0, 150) | await post(homes, 1, 150)
    late.begin()
    await late.wait_until_ready()

    async def has_begun() -> bool:
        return len(await homes.posts(2)) > len(before)

    await wait_for(has_begun, LEVEL_SECONDS, "the first posts")
    await late.kill_node()
    late.begin()
    await late.wait_until_ready()
    await until_level(homes, before | made)


@pytest.mark.req("HOMES-10")
async def test_a_home_whose_disk_fills_as_it_catches_up_has_everything_once(homes: Town) -> None:
    late = homes.houses[1]
    ballast = late.shell.home / "ballast"
    await late.kill_node()
    before = set(await homes.posts(0))
    made = await post(homes, 0, 150)
    homes.network.cut_off(1)
    late.begin()
    await late.wait_until_ready()
    fill(ballast)
    os.truncate(ballast, ballast.stat().st_size - FULL_BYTES // 2)
    homes.network.heal()
    await wait_for(lambda: "is full" in late.log("market"), LEVEL_SECONDS, "the full disk")
    assert set(await homes.posts(1)) == before
    fill(ballast)
    with pytest.raises(HearthNetError, match="the disk is full"):
        await homes.post(1)
    ballast.unlink()
    await until_level(homes, before | made)
