"""`make attacks [SECONDS=n] [SEED=n]`: every test of an attack, then random ones; writes build/attacks.json.

Exit status 1 where a test failed, or anything was wrong after a random attack.
"""

from __future__ import annotations

import argparse
import logging
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from tests.attacks.campaign import campaign
from tests.helpers.requirements import named_in

TESTS: Final = Path(__file__).resolve().parents[1]
RESULT: Final = TESTS.parent / "build" / "attacks.json"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _tests_of_attacks() -> list[str]:
    """The files with a test that is marked as an attack."""
    where = named_in(TESTS)
    files = {file for name, found in where.items() if name.startswith("ATTACK-") for file in found}
    return [str(TESTS / file) for file in sorted(files)]


def main() -> int:
    """All of it; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description="Attacks a node.")
    parser.add_argument("--seconds", type=float, default=180, help="how long to draw attacks (default: 180)")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--random-only", action="store_true", help="leave out the tests of the table")
    parser.add_argument("--result", type=Path, default=RESULT)
    options, to_pytest = parser.parse_known_args()
    failed = 0
    if not options.random_only:
        pytest = [sys.executable, "-m", "pytest", "-q", "-p", "tests.attacks.only_attacks"]
        failed = subprocess.run([*pytest, *to_pytest, *_tests_of_attacks()], check=False).returncode
    logging.getLogger("hearthnet").setLevel(logging.CRITICAL)
    logging.lastResort = None
    seed = secrets.randbelow(10**6) if options.seed is None else options.seed
    _say(f"random attacks for {options.seconds:g} s, seed {seed}")
    with tempfile.TemporaryDirectory(prefix="hn-attacks-") as folder:
        totals = campaign(Path(folder), seed, options.seconds, _say)
    for name, count in sorted(totals.attacks.items()):
        _say(f"{count:6}  {name}")
    _say(f"{len(totals.wrong)} wrong in {totals.seconds:g} s")
    options.result.parent.mkdir(parents=True, exist_ok=True)
    options.result.write_bytes(msgspec.json.format(msgspec.json.encode(totals), indent=1) + b"\n")
    return 1 if failed or totals.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
