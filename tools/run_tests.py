"""Run the tests, and those that failed once more alone (`make pytest`; docs/decisions/0090).

The suite runs in several processes at once, on machines that are shared with others. A test that fails there
and fails again alone is broken. One that then passes depends on how busy the machine is: it is named at the
end of the log, as a defect of the test or of what it tests, and does not stop the others.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_AGAIN = 8
"""More than so many failures are no matter of chance."""
BESIDE_OTHERS = ("-n", "auto", "--maxprocesses", "4", "--dist", "worksteal")
ALONE = ("-n", "0")
FAILED = 1
PASSED = "passed alone: it depends on how busy the machine is; mend it"


def run_pytest(root: Path, *arguments: str) -> int:
    """Pytest's exit code, with coverage data."""
    return subprocess.run(
        [sys.executable, "-m", "coverage", "run", "-m", "pytest", *arguments], cwd=root
    ).returncode


def failures(root: Path) -> list[str]:
    """The ids of the tests that failed in the last run."""
    record = root / ".pytest_cache" / "v" / "cache" / "lastfailed"
    return sorted(json.loads(record.read_text())) if record.exists() else []


def forget_failures(root: Path) -> None:
    """An earlier run's failures say nothing of this one."""
    (root / ".pytest_cache" / "v" / "cache" / "lastfailed").unlink(missing_ok=True)


def run(root: Path, arguments: list[str]) -> int:
    """The exit code of the whole: 0 where each test passed, beside the others or alone."""
    forget_failures(root)
    code = run_pytest(root, *BESIDE_OTHERS, *arguments)
    failed = failures(root)
    if code != FAILED or not 0 < len(failed) <= MOST_AGAIN:
        return code
    print(f"== {len(failed)} failed beside others, once more alone", flush=True)
    again = run_pytest(root, *ALONE, *failed)
    still = set(failures(root)) if again else set()
    for test in failed:
        outcome = (
            "failed again"
            if test in still
            else "passed alone: it depends on how busy the machine is; mend it"
        )
        print(f"== {test}: {outcome}", flush=True)
    return again


if __name__ == "__main__":
    sys.exit(run(ROOT, sys.argv[1:]))
