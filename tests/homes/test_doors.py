"""Three homes that meet at two doors: one was away for a month, and the founder's is lost for good."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.helpers.waiting import wait_for
from tests.homes.house import House
from tests.homes.network import need_namespaces
from tests.homes.town import Town, town

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]
POSTS = 7
DAYS, POSTS_A_DAY = 31, 20
PAGE = 500
"""Events that one answer to a home that was away has."""
LEVEL_SECONDS = 60.0
GO_ON_SECONDS = 5.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def homes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Town]:
    """Homes with doors at the first two; the place of a fourth one is free."""
    need_namespaces()
    async with town(tmp_path_factory.mktemp("town"), 3, free=1, doors=(0, 1)) as homes:
        yield homes


async def until_listed(homes: Town, post: str, *numbers: int) -> None:
    """Wait until these homes list the post."""

    async def is_listed() -> bool:
        return all([post in await homes.posts(number) for number in numbers])

    await wait_for(is_listed, what="the post at the others")


@pytest.mark.req("HOMES-9")
async def test_a_home_that_was_away_for_a_month_catches_up_in_pages(homes: Town) -> None:
    late = homes.houses[2]
    await late.kill_node()
    await homes.houses[0].run_module("tests.homes.month", str(DAYS), str(POSTS_A_DAY))
    current = {f"Day {DAYS - day} post {number}" for day in range(1, 7) for number in range(POSTS_A_DAY)}

    async def has_current(number: int) -> bool:
        return {post["title"] for post in (await homes.posts(number)).values()} == current

    for number in (0, 1):
        await wait_for(lambda number=number: has_current(number), LEVEL_SECONDS, "the posts of a week")  # type: ignore[misc]
    late.begin()
    notes = set()

    async def is_level() -> bool:
        notes.add(late.note("market"))
        return late.is_connected and await has_current(2)

    level = asyncio.create_task(wait_for(is_level, LEVEL_SECONDS, "the late home to be level"))
    await late.wait_until_ready()
    await level
    assert await homes.posts(0) == await homes.posts(1) == await homes.posts(2)
    assert f"fetching what was missed: {DAYS * POSTS_A_DAY - PAGE} events to go" in notes, notes


@pytest.mark.req("HOMES-5")
async def test_a_post_is_at_the_others_within_a_second(homes: Town) -> None:
    took = []
    for number in range(POSTS):
        at = number % 3
        made = await homes.post(at)
        began = time.monotonic()
        await until_listed(homes, made, *{0, 1, 2} - {at})
        took.append(time.monotonic() - began)
    # One that is lost on the way comes by comparing heads, which takes seconds.
    assert statistics.median(took) < 1, took


@pytest.mark.req("HOMES-6")
async def test_the_others_go_on_after_the_founders_home_is_lost(homes: Town, tmp_path: Path) -> None:
    before = set(await homes.posts(1))
    began = time.monotonic()
    await homes.houses[0].kill_node()
    homes.network.cut_off(0)
    await homes.wait_until_joined((1, 2))
    talked = time.monotonic() - began
    made = {number: await homes.post(number) for number in (1, 2)}
    await until_listed(homes, made[1], 2)
    await until_listed(homes, made[2], 1)
    listed = time.monotonic() - began
    assert listed < GO_ON_SECONDS, (talked, listed)

    shed = House(homes.network.places[3], tmp_path, "Shed")
    try:
        shed.join(homes.houses[2])
        shed.begin()
        await shed.wait_until_ready()
        homes.houses.append(shed)
        await homes.wait_until_joined((1, 2, 3))
        for made_there in (await homes.post(3), *before, *made.values()):
            await until_listed(homes, made_there, 1, 2, 3)
    finally:
        await shed.close()
