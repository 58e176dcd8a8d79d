"""Time as a promise to users means it: without the time in which other programs had the cores."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


class Stopwatch:
    """Seconds since it was made, less those that this thread and `pids` spent waiting for a core.

    On a quiet computer that is the time on the wall. On a busy one a timer or a lost message still shows, and
    the load does not. Name the processes through which what is measured passes, and no others. Where a bound
    is tight, wait for an event: what a loop that polls waits for a core is left out of a timer beside it.

    Of this process the calling thread alone counts, for the others (a model that is read meanwhile) wait
    beside what is measured; `threads` are those of a test that measures their work.
    """

    def __init__(self, *pids: int, threads: bool = False) -> None:
        self._pids = pids
        self._own = "" if threads else str(threading.get_native_id())
        self._queued = self._look()
        self._began = time.monotonic()

    def seconds(self) -> float:
        """The time so far. A process that has ended meanwhile counts as one that never waited."""
        wall = time.monotonic() - self._began
        return wall - sum(map(_longest, self._look(), self._queued))

    def _look(self) -> list[dict[str, int]]:
        return [_queued(os.getpid(), self._own or "*"), *(_queued(pid) for pid in self._pids)]


def seconds_of(command: Sequence[str | Path], environment: Mapping[str, str]) -> float:
    """Seconds that a command takes to its end, less those it waits for a core; it must succeed."""
    began = time.monotonic()
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        # Ended and not yet reaped: its figures can still be read.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        took = time.monotonic() - began - _longest(_queued(process.pid), {})
    assert process.returncode == 0, f"{command} ended with {process.returncode}"
    return took


def _queued(pid: int, threads: str = "*") -> dict[str, int]:
    """Nanoseconds that each thread of a process was ready to run and had no core (/proc/PID/schedstat)."""
    waited = {}
    for task in Path(f"/proc/{pid}/task").glob(threads):
        try:
            waited[task.name] = int((task / "schedstat").read_text("ascii").split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return waited


def _longest(now: Mapping[str, int], before: Mapping[str, int]) -> float:
    """Seconds of the thread that waited longest since: threads of a process wait side by side."""
    return max((waited - before.get(task, 0) for task, waited in now.items()), default=0) / 1e9
