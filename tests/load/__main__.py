"""`make load [ARGS="--capability rag.query@1.0"]`: presses every capability that reads, one after
the other, and writes build/load.json.

Exit status 1 where a caller was told anything but to come back, did not get through, or memory grew.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from tests.bench.__main__ import machine
from tests.helpers.full_house import FullHouse, full_house
from tests.load.crowd import crowd
from tests.load.figures import Outcome, table

RESULT: Final = Path(__file__).resolve().parents[2] / "build" / "load.json"
_MEMBERS: Final = ("ada", "ben", "cleo", "dan")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def _press(house: FullHouse, options: argparse.Namespace) -> list[Outcome]:
    outcomes: list[Outcome] = []
    async with crowd(house) as everybody:
        there = await everybody.capabilities()
        wanted = [name for name in there if not options.capability or name in options.capability]
        if missing := sorted(set(options.capability) - set(there)):
            _say(f"nobody offers {', '.join(missing)}; there are: {', '.join(there)}")
        for name in wanted:
            _say(f"pressing {name} ...")
            found = await everybody.press(name, options.callers, options.seconds, options.through)
            outcomes.append(found)
            for code, message in found.said.items():
                _say(f"  {found.errors[code]} times {code}: {message}")
            await asyncio.sleep(options.pause)
    return outcomes


def main() -> int:
    """All of it; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.load", description="Presses what reads.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--callers", type=int, default=200)
    parser.add_argument(
        "--capability", action="append", default=[], help="such as rag.query@1.0; all by default"
    )
    parser.add_argument(
        "--through", choices=("wire", "bus"), default="wire", help="past the callers' own queue"
    )
    parser.add_argument("--pause", type=float, default=2, help="seconds between two capabilities")
    parser.add_argument("--result", type=Path, default=RESULT)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="hn-load-") as folder,
        full_house(Path(folder), *_MEMBERS) as house,
    ):
        outcomes = asyncio.run(_press(house, options))
    options.result.parent.mkdir(parents=True, exist_ok=True)
    options.result.write_bytes(msgspec.json.format(msgspec.json.encode(outcomes), indent=1) + b"\n")
    _say(f"{machine()}\n{options.callers} callers, {options.seconds:g} s each, {options.through}\n")
    _say(table(outcomes))
    return 0 if outcomes and all(each.clean and each.flat for each in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
