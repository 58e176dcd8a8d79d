"""Hold the measured files against their coverage floors (pyproject.toml): `make core`, `make coverage`.

Reads `.coverage.json` as `coverage json` writes it. Prints each file below its floor with the lines and
branches that no test reached, and ends with 1 if there is one. With an argument, only files with a floor of
so many percent or more are looked at: the others are reached by tests that may not have run.
"""

from __future__ import annotations

import json
import sys
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Shortfall:
    """A file whose lines and branches are covered to fewer percent than its floor."""

    path: str
    percent: float
    floor: float
    lines: list[int]
    branches: list[list[int]]

    def __str__(self) -> str:
        parts = [f"{self.path}: {self.percent:.1f} %, floor {self.floor:g} %"]
        if self.lines:
            parts.append(f"  lines never run: {ranges(self.lines)}")
        if self.branches:
            jumps = ", ".join(f"{start} -> {'end' if end < 0 else end}" for start, end in self.branches)
            parts.append(f"  branches never taken: {jumps}")
        return "\n".join(parts)


def ranges(numbers: list[int]) -> str:
    """`3, 5-7` for [3, 5, 6, 7]."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def floor_of(path: str, floors: dict[str, float]) -> float:
    """The floor of the first pattern that matches."""
    return next((floor for pattern, floor in floors.items() if fnmatch(path, pattern)), 0.0)


def shortfalls(report: dict[str, Any], floors: dict[str, float]) -> list[Shortfall]:
    """The files below their floor, in the order of their names."""
    found = []
    for path, measured in sorted(report["files"].items()):
        percent, floor = float(measured["summary"]["percent_covered"]), floor_of(path, floors)
        if percent < floor:
            lines, branches = measured["missing_lines"], measured.get("missing_branches", [])
            found.append(Shortfall(path, percent, floor, lines, branches))
    return found


def unmeasured(report: dict[str, Any], root: Path) -> list[str]:
    """Modules that no test so much as imported; coverage leaves them out of its report where it may."""
    sources = [*(root / "hearthnet").rglob("*.py"), *root.glob("services/*/hearthnet_*/**/*.py")]
    names = (source.relative_to(root).as_posix() for source in sources if source.read_text().strip())
    return sorted(set(names) - set(report["files"]))


def main(arguments: list[str]) -> int:
    """0 when every file with a floor of `arguments[0]` percent or more holds it; without, every file."""
    least = float(arguments[0]) if arguments else 0.0
    every: dict[str, float] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hearthnet"][
        "coverage-floors"
    ]
    report = json.loads((ROOT / ".coverage.json").read_text())
    floors = {pattern: floor if floor >= least else 0.0 for pattern, floor in every.items()}
    below = shortfalls(report, floors)
    unseen = [path for path in unmeasured(report, ROOT) if floor_of(path, every) >= least]
    for shortfall in below:
        print(shortfall)
    for path in unseen:
        print(f"{path}: never imported by any test")
    looked = sum(floor_of(path, every) >= least for path in report["files"])
    print(f"coverage by branch: {looked} files, {len(below) + len(unseen)} below their floor")
    return 1 if below or unseen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
