"""One process of the node: it cannot outlive the supervisor, and its output goes to a log.

After a crash it is started again, later each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from hearthnet.core.errors import HearthNetError
from hearthnet.service.hosting import parent_death
from hearthnet.supervisor.os.log_file import LogFile

LINE_BYTES: Final = 256 * 1024


@contextlib.asynccontextmanager
async def reading(descriptor: int) -> AsyncIterator[asyncio.StreamReader]:
    """Yield a reader of `descriptor`, which is closed after the block.

    Lines may have up to `LINE_BYTES`.
    """
    reader = asyncio.StreamReader(limit=LINE_BYTES)
    file = os.fdopen(descriptor, "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), file
    )
    try:
        yield reader
    finally:
        transport.close()


FIRST_SECONDS: Final = 0.5
LONGEST_SECONDS: Final = 30.0
HEALTHY_SECONDS: Final = 60.0


class Backoff:
    """Doubling delays from 0.5 to 30 seconds, reset by a process that lived for a minute.

    `random` returns a number from 0 to 1: each delay is shortened by up to a quarter, so that several
    processes that crashed together do not restart together.
    """

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._failures = 0

    def wait(self, lasted: float) -> float:
        """Return the delay in seconds after a process that lived for `lasted` seconds."""
        if lasted >= HEALTHY_SECONDS:
            self._failures = 0
        full = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0**self._failures)
        self._failures = min(self._failures + 1, 16)
        return max(FIRST_SECONDS, full * (1 - self._random() / 4))


_CHUNK: Final = 65536
_DRAIN_SECONDS: Final = 0.3


class Child(Protocol):
    """A process that this one has started or had forked."""

    @property
    def pid(self) -> int:
        """Its id."""

    async def wait(self) -> int:
        """Wait for its end and return the exit code, negative for a signal."""


class Process:
    """A running process, leader of its own session and process group. Made by `start` or a `ForkServer`."""

    def __init__(self, child: Child, output: int, log: LogFile) -> None:
        """`output` is the reading end of the pipe to which it writes."""
        self._child = child
        self._log = log
        self._pump = asyncio.create_task(self._copy_output(output))
        self.pid: Final = child.pid

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        log: LogFile,
        *,
        environment: Mapping[str, str] | None = None,
        descriptors: Mapping[str, int] | None = None,
    ) -> Process:
        """Start `command`, an absolute path and its arguments.

        It has no terminal (Ctrl-C reaches the supervisor alone), its output goes to `log`, and it inherits
        only `descriptors`, whose numbers are in the variables that name them.

        Raises:
            HearthNetError: `capacity_exceeded` if it cannot be started.
        """
        log.forget()
        # Not a pipe of asyncio's own: its `wait` would last until the last grandchild has closed it.
        output, child_end = os.pipe()
        wrapper = [sys.executable, "-I", "-S", str(Path(parent_death.__file__)), str(os.getpid())]
        inherited = {name: str(number) for name, number in (descriptors or {}).items()}
        try:
            child = await asyncio.create_subprocess_exec(
                *wrapper,
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=child_end,
                stderr=child_end,
                env={**os.environ, **(environment or {}), **inherited},
                pass_fds=tuple((descriptors or {}).values()),
                start_new_session=True,
            )
        except BaseException as error:
            os.close(output)
            if not isinstance(error, OSError):
                raise
            raise HearthNetError(
                "capacity_exceeded", f"cannot start {command[0]}: {error.strerror}"
            ) from error
        finally:
            os.close(child_end)
        return cls(child, output, log)

    async def wait(self) -> int:
        """Wait for the end and return the exit code, negative for a signal.

        The rest of its process group is killed.
        """
        code = await self._child.wait()
        self._signal(signal.SIGKILL)
        await asyncio.wait({self._pump}, timeout=_DRAIN_SECONDS)
        self._pump.cancel()
        return code

    async def stop(self, grace: float) -> None:
        """Send SIGTERM, and kill the process if it has not ended after `grace` seconds."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._child.wait()), grace)
        self.kill()
        await self.wait()

    def kill(self) -> None:
        """Kill the process and its whole group."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    async def _copy_output(self, output: int) -> None:
        async with reading(output) as reader:
            while data := await reader.read(_CHUNK):
                self._log.write(data)


def exit_text(code: int, last_line: str) -> str:
    """Return a description of a process's end.

    `code` is as returned by `Process.wait`, `last_line` the last line of its log.
    """
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"{how}: {last_line[:200]}" if last_line else how
