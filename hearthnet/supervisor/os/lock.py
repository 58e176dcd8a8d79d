"""The lock of a home, held by its one supervisor (`hearthnet.core.node_state` reads it)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from typing import Final

from hearthnet.core.errors import OTHER, HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.node_state import running_pid
from hearthnet.supervisor.os.disk import file_errors

_PATIENCE_SECONDS: Final = 0.3
"""How long the supervisor of before may need to let go."""
_READERS_SECONDS: Final = 10.0
"""How long readers of the state may: they hold the lock shared, for microseconds when they have a core."""
_PAUSE_SECONDS: Final = 0.02


@contextlib.contextmanager
def home_lock(home: Home) -> Iterator[None]:
    """Hold the lock of `home` and write this process's pid into it.

    Raises:
        HearthNetError: `bad_request` (exit code 1) with the pid of a supervisor that already runs there.
    """
    with file_errors(home.lock):
        descriptor = os.open(home.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _acquire(descriptor, home)
        with file_errors(home.lock):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, home: Home) -> None:
    began = time.monotonic()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            patience = _READERS_SECONDS if running_pid(home) is None else _PATIENCE_SECONDS
            if time.monotonic() > began + patience:
                raise _already_running(home) from error
        time.sleep(_PAUSE_SECONDS)


def _already_running(home: Home) -> HearthNetError:
    pid = running_pid(home)
    holder = f" (process {pid}); end that one with: kill {pid}" if pid else "; end that one first"
    return HearthNetError(
        "bad_request", f"a node is already running in {home.path}{holder}", exit_status=OTHER
    )
