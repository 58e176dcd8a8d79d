"""`make bench [ARGS="NAME ..."]`: measures, prints one Markdown table, and writes build/bench.json.

With --page the table is written into docs/performance.md, too. Exit status 1 where a goal is missed.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from tests.bench.figures import ROUNDS, Figure

ROOT: Final = Path(__file__).resolve().parents[2]
RESULT: Final = ROOT / "build" / "bench.json"
PAGE: Final = ROOT / "docs" / "performance.md"
BEGIN: Final = "<!-- measured: begin -->"
END: Final = "<!-- measured: end -->"


def suites() -> dict[str, Callable[[], list[Figure]]]:
    """Every `NAME_bench.py` beside this file: what it measures, by its name."""
    found = {}
    for file in sorted(Path(__file__).parent.glob("*_bench.py")):
        if file.stem.startswith("test_"):
            continue
        module = importlib.import_module(f"tests.bench.{file.stem}")
        found[file.stem.removesuffix("_bench")] = module.figures
    return found


def table(figures: Iterable[Figure]) -> str:
    """The Markdown table of all figures."""
    lines = ["| figure | measured | goal | met | what |", "|---|---:|---:|---|---|"]
    for figure in figures:
        measured = f"{figure.value:.3g} {figure.unit}".strip()
        met = ("yes" if figure.met else "**no**") if figure.goal else ""
        lines.append(f"| `{figure.name}` | {measured} | {figure.goal} | {met} | {figure.what} |")
    return "\n".join(lines) + "\n"


def machine() -> str:
    """One line that says where and when it was measured."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    load = os.getloadavg()[0]
    when = datetime.now(UTC).date().isoformat()
    return (
        f"{when}, {os.cpu_count()} cores ({model}), Python {platform.python_version()}, "
        f"load {load:.1f} when it ended; {ROUNDS} rounds in turns, medians of their quickest batches."
    )


def write_page(measured: str) -> None:
    """Puts `measured` between the two marks of docs/performance.md."""
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    tail = rest.partition(END)[2]
    PAGE.write_text(f"{head}{BEGIN}\n{measured}{END}{tail}")


def main(arguments: list[str]) -> int:
    """Runs the suites that are named, all by default."""
    known = suites()
    wanted = [argument for argument in arguments if argument != "--page"] or list(known)
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        sys.stderr.write(f"no suite {', '.join(unknown)}; there are: {', '.join(known)}\n")
        return 2
    figures: list[Figure] = []
    for name in wanted:
        sys.stderr.write(f"measuring {name} ...\n")
        figures += known[name]()
    RESULT.parent.mkdir(exist_ok=True)
    values = {figure.name: figure.value for figure in figures}
    RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(values), indent=1) + b"\n")
    measured = f"{machine()}\n\n{table(figures)}"
    sys.stdout.write(measured)
    if "--page" in arguments:
        write_page(measured)
    return 0 if all(figure.met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
