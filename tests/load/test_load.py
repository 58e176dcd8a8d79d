"""Load in small: fifty callers at once on every capability that reads, on a whole node."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from hearthnet.core.errors import HearthNetError
from tests.helpers.full_house import FullHouse, full_house, memory_kb
from tests.load.callers import served
from tests.load.crowd import crowd
from tests.load.figures import Memory, Order, Outcome, Tally, memory, outcome, table

ALWAYS = {"rag.query@1.0", "market.list@1.0", "file.read@1.0", "llm.chat@2.0", "mesh.query@1.0"}
CALLERS = 50
SECONDS = 200.0
"""The most that it may take; each caller asks once."""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FullHouse]:
    """A node with every service, and two members whose programs call."""
    with full_house(tmp_path_factory.mktemp("house"), "ada", "ben") as running:
        yield running


@pytest.mark.timeout(1_200)
@pytest.mark.req("LOAD-1")
@pytest.mark.asyncio
async def test_a_crowd_is_served_and_told_nothing_but_to_come_back(house: FullHouse) -> None:
    before, refused = house.processes, 0
    async with crowd(house) as everybody:
        names = await everybody.capabilities()
        assert set(names) >= ALWAYS
        for name in names:
            alone = await everybody.press(name, 1, SECONDS, "wire", most=1)
            if name.startswith("community.device."):
                assert set(alone.errors) == {"unauthorized"}, f"{name} is for devices of the person alone"
                continue
            if name not in ALWAYS and set(alone.errors) == {"not_found"}:
                continue  # its sample is about what is not installed here, such as a language
            found = await everybody.press(name, CALLERS, SECONDS, "wire", most=1)
            assert found.clean, f"{name}: {found.errors} {found.said}, {found.unserved} without an answer"
            assert found.answered == CALLERS
            refused += found.refused
    assert refused, "nobody was refused: that was no crowd"
    assert house.processes == before


@pytest.mark.timeout(1_200)
@pytest.mark.req("LOAD-1")
@pytest.mark.asyncio
async def test_memory_is_flat_over_two_thousand_calls(house: FullHouse) -> None:
    """By the count of calls and not by time, so that a slow computer is asked as much as a quick one."""
    name = "market.list@1.0"
    async with crowd(house) as everybody:
        await everybody.press(name, CALLERS, 3 * SECONDS, "wire", most=10)
        warm = {process: memory_kb(pid) for process, pid in house.processes.items()}
        found = await everybody.press(name, CALLERS, 3 * SECONDS, "wire", most=40)
        assert (found.answered, found.clean) == (40 * CALLERS, True)
        for process, pid in house.processes.items():
            grown = Memory(warm[process], warm[process], memory_kb(pid))
            assert grown.flat(found.answered), f"{process} grew by {grown.growth:.0f} KB"


@pytest.mark.req("LOAD-1")
@pytest.mark.asyncio
async def test_a_refusal_that_does_not_say_when_to_come_back_is_an_error() -> None:
    answers: list[HearthNetError | None] = [
        HearthNetError("capacity_exceeded", "full", retry_after_ms=1),
        None,
        HearthNetError("capacity_exceeded", "full"),
        HearthNetError("rate_limited", "too many", retry_after_ms=1),
    ]

    async def asking() -> None:
        if (error := answers.pop(0)) is not None:
            raise error

    tally = Tally()
    for _ in range(3):
        await served(asking, tally, float("inf"))
    assert (tally.answered, tally.refused) == (1, 1)
    assert tally.errors == {"capacity_exceeded": 1, "rate_limited": 1}


@pytest.mark.req("LOAD-1")
def test_what_many_processes_of_callers_met_with_is_put_together() -> None:
    tallies = [Tally(2, 1, took_ms=[1.0, 9.0]), Tally(1, 0, 1, {"timeout": 1}, {"timeout": "late"}, [5.0])]
    order = Order("rag.query@1.0", 3, 1.0, 0, "wire", msgspec.Raw(b"{}"))
    found = outcome(order, 1.0, tallies, {"rag": Memory(10_000, 20_000, 20_500)})
    assert (found.answered, found.refused, found.unserved, found.errors) == (3, 1, 1, {"timeout": 1})
    assert (found.p50_ms, found.longest_ms) == (5.0, 9.0)
    assert found.flat
    assert not found.clean
    assert "| 2 | 5 | 9 | 9 | rag +0.5 MB |" in table([found])


@pytest.mark.req("LOAD-1")
def test_memory_is_flat_where_it_does_not_grow_after_the_warm_up() -> None:
    warming_up = [50_000.0, *[80_000.0] * 20]
    leaking = [50_000.0 + 1_000 * step for step in range(50)]
    assert memory(warming_up).flat(0)
    assert not memory(leaking).flat(0)
    assert memory(leaking).flat(500_000)
    assert memory([50_000.0]).growth == 0


@pytest.mark.req("LOAD-1")
@pytest.mark.parametrize(
    ("answered", "grows_kb", "flat"),
    [
        (1, 10, True),
        (1, 1_000, False),
        (60_000, 150, True),  # 24,000 more ids are remembered at the end than in the middle
        (60_000, 400, False),
        (6_000_000, 150, False),  # there is no room for more since long
    ],
)
def test_remembering_is_allowed_for_as_far_as_it_goes(answered: int, grows_kb: int, flat: bool) -> None:
    course = memory([50_000.0 + grows_kb * step for step in range(120)])
    seen = Outcome("a", 200, 4, 60, answered, 0, 0, {}, {}, 1, 1, 1, {"rag": course})
    assert seen.flat is flat
