"""`make chaos [SCHEDULES=n] [SEED=n] [WORLDS=n]`: carries the schedules out and writes build/chaos.json.

Exit status 1 where an effect happened twice, is missing, or was confirmed by nobody, or anything else is
wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import secrets
import sys
from pathlib import Path
from typing import Final

import msgspec

from tests.chaos.campaign import Campaign, summary, table
from tests.chaos.plan import plans
from tests.chaos.world import Nursery

RESULT: Final = Path(__file__).resolve().parents[2] / "build" / "chaos.json"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """The campaign; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Counts effects under kills.")
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--worlds", type=int, default=6)
    parser.add_argument("--result", type=Path, default=RESULT)
    options = parser.parse_args()
    logging.getLogger("hearthnet").setLevel(logging.CRITICAL)
    logging.lastResort = None
    seed = secrets.randbelow(10**6) if options.seed is None else options.seed
    _say(f"seed {seed}, {options.schedules} schedules in {options.worlds} worlds")
    campaign = Campaign(seed, plans(seed, options.schedules), _say)
    options.result.parent.mkdir(parents=True, exist_ok=True)
    with Nursery(options.result.with_suffix(".log")) as nursery:
        totals = asyncio.run(campaign.run(nursery, min(options.worlds, options.schedules)))
    _say(table(totals))
    _say(summary(totals))
    options.result.write_bytes(msgspec.json.format(msgspec.json.encode(totals), indent=2) + b"\n")
    return 0 if totals.clean else 1


if __name__ == "__main__":
    sys.exit(main())
