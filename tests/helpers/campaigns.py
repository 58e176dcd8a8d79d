"""Campaigns from the command line: `python -m tests.NAME [--COUNT n] [--seed n] [--result FILE]`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import secrets
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

BUILD = Path(__file__).resolve().parents[2] / "build"


class Campaign(Protocol):
    """What draws its work by a seed; the totals that it returns have `findings`."""

    async def run(self, count: int) -> Any:
        """Carry out so many rounds."""


def carry_out(
    make: Callable[[Path, int, Callable[[str], None]], Campaign], result: str, count: str, default: int
) -> int:
    """Run a campaign, print its totals and write them to `result` in build; return the exit status.

    It is 1 where something was found. `count` is the name of the option for the number of rounds.
    """
    parser = argparse.ArgumentParser(prog="python -m tests." + make.__module__.split(".")[1])
    parser.add_argument(f"--{count}", dest="count", type=int, default=default)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--result", type=Path, default=BUILD / result)
    options = parser.parse_args()
    logging.lastResort = None
    seed = secrets.randbelow(10**6) if options.seed is None else options.seed
    _say(f"seed {seed}, {options.count} {count}")
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        totals = asyncio.run(make(Path(folder), seed, _say).run(options.count))
    found = msgspec.json.format(msgspec.json.encode(totals), indent=2)
    _say(found.decode())
    options.result.parent.mkdir(parents=True, exist_ok=True)
    options.result.write_bytes(found + b"\n")
    return 1 if totals.findings else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
