"""A few schedules of the campaign, the same each time, with nothing wrong; and broken parts, which are found.

The long campaign is `make chaos`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.chaos import steps
from tests.chaos.campaign import Campaign, Totals
from tests.chaos.plan import Call, How, Kill, Plan, Word, plans
from tests.chaos.steps import Victim
from tests.chaos.world import Nursery

pytestmark = pytest.mark.timeout(300)


def plan(number: int, word: Word, how: How, *kills: tuple[str, Victim], resumers: int = 1) -> Plan:
    """One post, about which somebody says `word`."""
    call = Call(f"0-{number}.0", "market_post", word, how)
    return Plan(0, number, ((call,),), tuple(Kill(*kill) for kill in kills), resumers=resumers)


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with Nursery(tmp_path_factory.mktemp("chaos") / "processes.log") as made:
        yield made


async def carry_out(nursery: Nursery, *wanted: Plan, sabotage: str = "", worlds: int = 1) -> Totals:
    lines: list[str] = []
    totals = await Campaign(0, wanted, lines.append).run(nursery, worlds, sabotage)
    assert totals.schedules == len(wanted)
    assert sabotage or totals.clean, "\n".join(lines)
    return totals


@pytest.mark.req("CHAOS-3")
def test_effects_happen_exactly_once_whatever_is_killed(nursery: Nursery) -> None:
    totals = asyncio.run(carry_out(nursery, *plans(5, 6), worlds=3))
    assert totals.kills >= 3
    assert totals.effects >= 3


SABOTAGE: dict[str, tuple[Plan, str]] = {
    "nothing is saved": (plan(1, "yes", "here", (steps.ANSWERED, "executor")), "effects_twice"),
    "keys are forgotten": (plan(2, "yes", "here", (steps.APPENDED, "provider")), "effects_twice"),
    "nobody is asked": (plan(3, "no", "later"), "effects_unconfirmed"),
    "a decision is lost": (plan(4, "yes", "later"), "effects_missing"),
    "arguments are changed": (plan(5, "yes", "here"), "effects_missing"),
    "no claim": (plan(6, "yes", "here"), "troubles"),
    "two drivers": (plan(7, "yes", "later", resumers=2), "troubles"),
}


@pytest.mark.req("CHAOS-4")
def test_what_is_broken_is_found_and_nothing_where_nothing_is(nursery: Nursery) -> None:
    """The same schedules in worlds of which each is broken in another way, and in a sound one."""
    at_once = asyncio.Semaphore(3)

    async def one(sabotage: str, *wanted: Plan) -> Totals:
        async with at_once:
            return await carry_out(nursery, *wanted, sabotage=sabotage)

    async def all_of_them() -> list[Totals]:
        sound = one("", *(schedule for schedule, _ in SABOTAGE.values()))
        return await asyncio.gather(sound, *(one(name, schedule) for name, (schedule, _) in SABOTAGE.items()))

    sound, *broken = asyncio.run(all_of_them())
    assert sound.effects == 6
    for (name, (_, counter)), totals in zip(SABOTAGE.items(), broken, strict=True):
        assert getattr(totals, counter) > 0, (name, totals)
