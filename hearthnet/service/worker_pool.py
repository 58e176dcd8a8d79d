"""Jobs in processes of their own, so that no input can crash a service or fill its memory.

An idle process waits for the next job and ends by itself if none comes. Calls block, and may come from any
thread.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO, Final, Literal, cast

from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.service.worker_process import (
    Accepted,
    Job,
    JobFailed,
    JobProgress,
    JobResult,
    OnProgress,
    Rejected,
    answer_decoder,
    receive,
    send,
)

_MOST_BYTES: Final = 512 * 1024 * 1024
_TRIES: Final = 5
_PRIVATE: Final = re.compile("HEARTHNET|KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)

Failure = Literal["time", "memory", "crash"]
OnFailure = Callable[[Failure, str], HearthNetError]
"""Returns the error of a job that used up its time or memory, or failed by the named exception.

Without a name the process died.
"""


def _no_progress(stage: str, current: int, total: int) -> None:
    """Ignore progress."""


class WorkerPool:
    """Processes that call `function`, MODULE:NAME, once for each job (`worker_process`).

    At most `places` run at a time. Each has `memory_bytes` of address space, and a job `seconds` of elapsed
    time as well as of processor time. Variables of the environment that look like secrets are not passed on.
    """

    def __init__(self, function: str, *, memory_bytes: int, seconds: float, places: int) -> None:
        self._command = [
            sys.executable,
            "-m",
            "hearthnet.service.worker_process",
            function,
            str(memory_bytes),
        ]
        self._seconds = seconds
        self._idle: queue.LifoQueue[_Child] = queue.LifoQueue()
        self._places = threading.BoundedSemaphore(places)
        self._changing = threading.Lock()
        self._all: set[_Child] = set()
        self._closing = False

    def run(self, job: bytes, on_failure: OnFailure, on_progress: OnProgress = _no_progress) -> bytes:
        """Return the result of `job`.

        Raises:
            HearthNetError: The error that the function raised, or that of `on_failure`; `partition` if the
                service is stopping; `internal_error` if no process can be started.
        """
        with self._places:
            return self._run(Job(job, int(self._seconds) + 1), on_failure, on_progress)

    def _run(self, job: Job, on_failure: OnFailure, on_progress: OnProgress) -> bytes:
        for _ in range(_TRIES):
            child = self._acquire()
            try:
                result = child.run(job, self._seconds, on_failure, on_progress)
            except _ProcessEnded:  # the process had ended after its idle time
                self._forget(child)
            except HearthNetError:
                self._put_back(child)
                raise
            except BaseException:  # its answer was not read to the end
                self._forget(child)
                raise
            else:
                self._put_back(child)
                return result
        raise HearthNetError("internal_error", "a process for a job cannot be started; see the log")

    def close(self) -> None:
        """Kill all processes; jobs in progress fail."""
        with self._changing:
            self._closing = True
            for child in self._all:
                child.kill()
            self._all.clear()

    def _acquire(self) -> _Child:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            with self._changing:
                if self._closing:
                    raise _stopping() from None
                child = _Child(self._command)
                self._all.add(child)
                return child

    def _put_back(self, child: _Child) -> None:
        if child.alive:
            self._idle.put(child)
        else:
            self._forget(child)
        if self._closing:
            raise _stopping()

    def _forget(self, child: _Child) -> None:
        child.kill()
        with self._changing:
            self._all.discard(child)


class _ProcessEnded(Exception):
    """Raised when the process ended before it took the job."""


class _Child:
    """One process."""

    def __init__(self, command: list[str]) -> None:
        environment = {name: value for name, value in os.environ.items() if not _PRIVATE.search(name)}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        self.alive = True
        self._late = False

    def run(self, job: Job, seconds: float, on_failure: OnFailure, on_progress: OnProgress) -> bytes:
        """Return the result of `job`.

        Raises:
            HearthNetError: As `WorkerPool.run`.
            _ProcessEnded: the process had ended before.
        """
        timer = threading.Timer(seconds, self._time_is_up)
        timer.daemon = True
        timer.start()
        try:
            return self._run(job, on_failure, on_progress)
        except (OSError, ValueError) as error:  # the process has closed its end of the pipe
            raise _ProcessEnded from error
        finally:
            timer.cancel()
            timer.join()  # it may be killing the process right now
            if self._late:
                self.alive = False

    def _run(self, job: Job, on_failure: OnFailure, on_progress: OnProgress) -> bytes:
        incoming, outgoing = cast("IO[bytes]", self._process.stdout), cast("IO[bytes]", self._process.stdin)
        send(outgoing, job)
        accepted = False
        while (data := receive(incoming, _MOST_BYTES)) is not None:
            match answer_decoder.decode(data):
                case Accepted():
                    accepted = True
                case JobProgress(stage, current, total):
                    on_progress(stage, current, total)
                case Rejected(code, message, details):
                    raise HearthNetError(code, message, details=details)
                case JobFailed(exception, memory):
                    raise on_failure("memory" if memory else "crash", exception)
                case JobResult(result):
                    return result
        self.alive = False
        if not accepted and not self._late:
            raise _ProcessEnded
        raise on_failure("time" if self._late else "crash", "")

    def _time_is_up(self) -> None:
        self._late = True
        self._process.kill()

    def kill(self) -> None:
        """Kill the process and close its pipes."""
        self.alive = False
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):  # unsent data of a dead process
                cast("IO[bytes]", pipe).close()


def _stopping() -> HearthNetError:
    return Unavailable("the service is stopping; try again", rule="provider_stopping")
