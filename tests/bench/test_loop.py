"""What is measured is the whole turn, for us as for those beside us."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hearthnet.contracts.schema import SchemaCheck
from tests.bench import loop_bench
from tests.bench.loop_ports import NoBus, ours
from tests.bench.loop_rivals import RIVALS, TOOLS, Tool
from tests.bench.loop_turn import ANSWER, CALLS, NAMES, declared_own
from tests.helpers.memory_runs import MemoryRuns

pytestmark = [pytest.mark.asyncio, pytest.mark.req("BENCH-3")]


async def test_every_figure_of_the_loop_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_bench, "ROUNDS", 1)
    figures = {figure.name: figure for figure in await loop_bench.measure(tmp_path, 1)}
    assert {name for name, figure in figures.items() if figure.goal} >= {
        "loop.vs_pydantic_ai",
        "loop.bus_vs_pydantic_ai",
        "loop.four_slow_ms",
        "loop.first_call_ms",
        "loop.save_ms",
    }
    assert all(figure.value > 0 for figure in figures.values())
    assert figures["loop.four_slow_ms"].value > 50


@pytest.mark.parametrize("name", RIVALS)
async def test_the_others_run_the_same_tools_and_say_the_same(name: str) -> None:
    ran: Counter[str] = Counter()

    def counting(tool: Tool) -> Tool:
        @functools.wraps(tool)
        async def counted(**arguments: Any) -> dict[str, Any]:
            ran[tool.__name__] += 1
            return await tool(**arguments)

        return counted

    assert await RIVALS[name]([counting(tool) for tool in TOOLS])() == ANSWER
    assert ran == dict.fromkeys(NAMES, 1)


async def test_a_measured_turn_checks_every_call_and_encodes_its_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked: list[object] = []
    saved: list[bytes] = []
    accepts, save = SchemaCheck.accepts, MemoryRuns.save

    async def saving(store: MemoryRuns, run: str, data: bytes, revision: int) -> int:
        saved.append(data)
        return await save(store, run, data, revision)

    def counting(check: SchemaCheck, value: object) -> bool:
        checked.append(value)
        return accepts(check, value)

    turn = ours(NoBus(), declared_own())
    monkeypatch.setattr(SchemaCheck, "accepts", counting)
    monkeypatch.setattr(MemoryRuns, "save", saving)
    assert await turn() == ANSWER
    given = [arguments for _, _, arguments in CALLS]
    assert [value for value in checked if value in given] == given
    assert len(checked) == len(CALLS)
    assert len(saved) >= 2
    assert all(b'"search_marketplace"' in data for data in saved)
    assert ANSWER.encode() in saved[-1]
