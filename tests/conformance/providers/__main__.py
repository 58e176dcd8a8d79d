"""Runs the checks over a folder: failing cases with their reasons, then one JSON line of totals."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conformance.providers import requests, responses
from tests.conformance.providers.recording import Recording, Unreadable, recordings

Totals = dict[str, dict[str, int]]


def run(folder: Path, say: Callable[[str], Any]) -> Totals:
    """The totals per provider; each failing case is said."""
    totals: Totals = {}
    for recording in recordings(folder):
        counts = totals.setdefault(
            recording.provider,
            dict.fromkeys(
                ("cases", "passed", "responses_ok", "responses_failed", "requests_ok", "requests_failed",
                 "requests_absent", "requests_refused"), 0),
        )  # fmt: skip
        if isinstance(recording, Unreadable):
            counts["cases"] += 1
            say(f"{recording.provider}/{recording.id}: no recording: {recording.why}")
            continue
        heard = _guarded(lambda one: ("", responses.problems(one)), recording)[1]
        outcome, asked = _guarded(requests.problems, recording)
        counts["cases"] += 1
        counts["responses_failed" if heard else "responses_ok"] += 1
        counts[f"requests_{outcome}"] += 1
        counts["passed"] += not heard and outcome != "failed"
        for part, found in (("response", heard), (f"request {outcome}", asked)):
            for line in found:
                say(f"{recording.provider}/{recording.id}: {part}: {line}")
    return totals


def _guarded(
    check: Callable[[Recording], tuple[str, list[str]]], recording: Recording
) -> tuple[str, list[str]]:
    """A check that falls over has failed, and says where."""
    try:
        return check(recording)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return "failed", [f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"]


def main(arguments: list[str]) -> int:
    """0 when every case passes, 1 when one fails or there is none, 2 for a wrong call."""
    folder = Path(arguments[0]) if len(arguments) == 1 else None
    if folder is None or not folder.is_dir():
        if folder is not None:
            sys.stderr.write(
                f"{folder}: {'not a folder' if folder.exists() else 'there is no such folder'}\n"
            )
        sys.stderr.write("usage: python -m tests.conformance.providers FOLDER\n")
        return 2
    totals = run(folder, lambda line: sys.stdout.write(f"{line}\n"))
    if not totals:
        sys.stderr.write(
            f"{folder}: no recording; one folder per provider with JSON files in it is expected\n"
        )
    sys.stdout.write(json.dumps(totals) + "\n")
    passed = all(counts["passed"] == counts["cases"] for counts in totals.values())
    return 0 if totals and passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
