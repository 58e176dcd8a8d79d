"""The coverage floors hold, and what falls below them is said so that it can be mended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tools.coverage_floors import ranges, shortfalls, unmeasured

FLOORS = {"hearthnet/protocol/*": 100.0, "*": 90.0}


def measured(percent: float, lines: list[int], branches: list[list[int]]) -> dict[str, Any]:
    """One file of a report by `coverage json`."""
    return {"summary": {"percent_covered": percent}, "missing_lines": lines, "missing_branches": branches}


@pytest.mark.req("SETUP-9")
def test_a_file_below_its_floor_is_named_with_what_was_not_run() -> None:
    report = {
        "files": {
            "hearthnet/protocol/frame.py": measured(99.0, [4, 5, 6, 9], [[3, -1], [3, 4]]),
            "hearthnet/supervisor/table.py": measured(91.0, [2], []),
            "hearthnet/supervisor/supervisor.py": measured(89.9, [7], []),
        }
    }
    below = [str(one) for one in shortfalls(report, FLOORS)]
    assert below == [
        "hearthnet/protocol/frame.py: 99.0 %, floor 100 %\n"
        "  lines never run: 4-6, 9\n"
        "  branches never taken: 3 -> end, 3 -> 4",
        "hearthnet/supervisor/supervisor.py: 89.9 %, floor 90 %\n  lines never run: 7",
    ]


def test_a_module_that_nothing_imports_is_found(tmp_path: Path) -> None:
    for name in ["hearthnet/seen.py", "hearthnet/bus/unseen.py", "services/rag/hearthnet_rag/unseen.py"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("X = 1\n")
    (tmp_path / "hearthnet" / "empty.py").touch()
    report: dict[str, Any] = {"files": {"hearthnet/seen.py": {}}}
    assert unmeasured(report, tmp_path) == ["hearthnet/bus/unseen.py", "services/rag/hearthnet_rag/unseen.py"]


def test_runs_of_lines_are_drawn_together() -> None:
    assert ranges([9, 1, 2, 3]) == "1-3, 9"
