"""Programs that stand for Apertium's, and the real ones where they are installed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hearthnet_trans.apertium import modes
from hearthnet_trans.backend import Pair
from tests.helpers.leaving import leave_out

PAIRS: list[Pair] = sorted(modes.installed(modes.folder())) or [("en", "es")]


def need(*pairs: Pair) -> None:
    """Leave a test out where Apertium, or one of its pairs, is not installed."""
    there = modes.installed(modes.folder())
    if missing := [pair for pair in pairs if pair not in there]:
        leave_out(f"Apertium has no pair {'-'.join(missing[0])} here: make system-deps")


def by_command(pair: Pair, text: str, form: str = "txt") -> str:
    """What the `apertium` command makes of `text`, in a process of its own."""
    mode = modes.installed(modes.folder())[pair].stem
    done = subprocess.run(
        ["apertium", "-u", "-f", form, mode],
        input=text,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


@contextmanager
def own_programs(folder: Path, patch: pytest.MonkeyPatch, **pairs: str) -> Iterator[Path]:
    """A folder of modes: `eng_spa="sed -z -u s/a/b/"` is what stands in eng-spa.mode."""
    bin_folder, mode_folder = folder / "bin", folder / "modes"
    bin_folder.mkdir()
    mode_folder.mkdir()
    tell = bin_folder / "apertium-wblank-mode"
    tell.write_text('#!/bin/sh\nshift\nexec cat "$1"\n')
    tell.chmod(0o755)
    for name, programs in pairs.items():
        (mode_folder / f"{name.replace('_', '-')}.mode").write_text(programs + "\n")
    patch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
    yield mode_folder


def in_group(group: int) -> list[int]:
    """The processes of a group that still run; what has ended and waits to be reaped does not count."""
    listed = subprocess.run(["ps", "-eo", "pid=,pgid=,stat="], capture_output=True, text=True, check=True)
    rows = [line.split() for line in listed.stdout.splitlines()]
    return [int(pid) for pid, pgid, state in rows if int(pgid) == group and not state.startswith("Z")]
