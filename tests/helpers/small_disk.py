"""A small disk of its own, to be filled: a file system in memory."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from hearthnet.core.home import Home
from tests.helpers.leaving import leave_out

Mount = Callable[[str], Home]


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Mount]:
    """Mounts at `folder`, with the mount options given; what it gives is a home there."""
    folder.mkdir()
    program = shutil.which("mount")
    if program is None or os.geteuid() != 0:
        leave_out("mounting a small disk takes root")

    def mounted(options: str) -> Home:
        done = subprocess.run(
            [program, "-t", "tmpfs", "-o", f"mode=700,{options}", "tmpfs", str(folder)],
            check=False,
            capture_output=True,
        )
        if done.returncode:
            leave_out(f"this system cannot mount a small disk: {done.stderr.decode().strip()}")
        return Home(folder)

    try:
        yield mounted
    finally:
        subprocess.run(["umount", str(folder)], check=False, capture_output=True)


def fill(ballast: Path) -> None:
    """Leaves no byte free on the disk of `ballast`."""
    done = subprocess.run(
        ["dd", "if=/dev/zero", f"of={ballast}", "bs=4k", "oflag=append", "conv=notrunc"],
        check=False,
        capture_output=True,
    )
    assert b"No space left" in done.stderr
