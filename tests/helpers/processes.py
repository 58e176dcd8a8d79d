"""Environments for child processes, and the proof that none of them is left."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.helpers.waiting import wait_for_sync


def child_environment(**extra: str | Path) -> dict[str, str]:
    """This process's environment for a child that is measured by coverage too, with `extra` on top."""
    return {**os.environ, **{name: str(value) for name, value in extra.items()}}


def bare_environment(**extra: str | Path) -> dict[str, str]:
    """The same without settings of coverage, HearthNet, virtualenv and make, as after a login."""
    dropped = ("COVERAGE_", "COV_", "PYTHONPATH", "VIRTUAL_ENV", "PYTEST_", "HEARTHNET_", "MAKE", "MFLAGS")
    # `make test ARGS=...` exports its arguments, which are not those of a make that a test starts.
    names = os.environ.keys() - {"ARGS", "PYTHON", "SEED"}
    kept = {name: os.environ[name] for name in names if not name.startswith(dropped)}
    return {**kept, **{name: str(value) for name, value in extra.items()}}


def pause(pid: int) -> None:
    """Stop a process (SIGSTOP); returns when none of its threads runs any more.

    The signal takes effect in each thread when that next gets a core: on a busy machine a server still
    answered 8 of 100 requests that were sent after it.
    """
    os.kill(pid, signal.SIGSTOP)
    wait_for_sync(lambda: _states(pid) == {"T"}, what=f"process {pid} to stop")


def kill(pid: int) -> None:
    """Kill a process (SIGKILL), whoever started it; returns when all of it has ended."""
    os.kill(pid, signal.SIGKILL)
    wait_for_sync(lambda: _states(pid) <= {"Z", "X"}, what=f"process {pid} to end")


@contextlib.contextmanager
def paused(pid: int) -> Iterator[None]:
    """Keep a process stopped in the block: it holds its connections and does nothing."""
    try:
        pause(pid)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _states(pid: int) -> set[str]:
    """The states of its threads, as letters of proc(5); what ends meanwhile, the process too, has none."""
    states = set()
    ended = contextlib.suppress(FileNotFoundError, ProcessLookupError)
    with ended:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with ended:
                stat = Path(f"/proc/{pid}/task/{thread}/stat").read_text("ascii", "replace")
                states.add(stat.rpartition(")")[2].split()[0])
    return states


def unused_port() -> int:
    """A port that is free and stays so: the system gives none of these to whoever asks for any port."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()[0])
    while True:
        port = random.randrange(10_000, lowest)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def processes_of(home: Path) -> list[str]:
    """The command lines of living processes that name `home` as argument or as HEARTHNET_HOME."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            command, environment = process.cmdline(), process.environ()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        named = any(str(home) in argument for argument in command)
        if named or environment.get("HEARTHNET_HOME") == str(home):
            found.append(f"{process.pid}: {' '.join(command)}")
    return found
