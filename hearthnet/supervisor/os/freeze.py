"""Processes of the node that stand still for a moment, as they would after a kill.

See: docs/protocol/backup.md#one-moment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from hearthnet.core.errors import Unavailable

STOP_SECONDS: Final = 2.0
"""A thread that waits for the disk stops only when its write is done."""
_PAUSE_SECONDS: Final = 0.001
_PROC: Final = Path("/proc")
_STOPPED: Final = frozenset("TtZX")


@contextlib.contextmanager
def frozen(groups: Iterable[int]) -> Iterator[None]:
    """Hold all processes of the process groups, from the time when each has stopped to the end of the block.

    Raises:
        Unavailable: They do not stop; they run on.
    """
    groups = tuple(groups)
    try:
        for group in groups:
            _signal(group, signal.SIGSTOP)
        until = time.monotonic() + STOP_SECONDS
        while running := _running(groups):
            if time.monotonic() > until:
                raise Unavailable(
                    f"the processes {running} of the node do not stop for a backup; try again later",
                    rule="contended",
                )
            time.sleep(_PAUSE_SECONDS)
        yield
    finally:
        for group in groups:
            _signal(group, signal.SIGCONT)


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _running(groups: tuple[int, ...]) -> list[int]:
    """Return the processes of the groups of which a thread runs; none where the system hides it."""
    found = []
    for process in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = _fields(process / "stat")
            if int(fields[2]) in groups and not _is_stopped(process):
                found.append(int(process.name))
    return found


def _is_stopped(process: Path) -> bool:
    for thread in (process / "task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if _fields(thread / "stat")[0] not in _STOPPED:
                return False
    return True


def _fields(path: Path) -> list[str]:
    """Return state, parent, group ... of a process or thread; its name may hold anything."""
    return path.read_text("utf-8", "replace").rpartition(")")[2].split()
