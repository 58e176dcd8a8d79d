"""Reading of documents in separate processes, so that no document can crash the service.

At most one process for each processor, and at least two, run at a time. An idle process waits for the next
document and ends by itself if none comes. Calls block, and may come from any thread.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import subprocess
import sys
import threading
from typing import IO, Final, cast

from hearthnet import HearthNetError
from hearthnet_rag.readers import OnProgress, read_as
from hearthnet_rag.readers.content_type import kind_of
from hearthnet_rag.readers.documents import Document, rejected, stopped
from hearthnet_rag.readers.worker_ipc import (
    Accepted,
    Job,
    ReadProgress,
    ReadResult,
    Rejected,
    answer_decoder,
    receive,
    send,
)

SECONDS: Final = 120.0
"""Limit for one document, of elapsed time as well as of processor time."""
_MOST_BYTES: Final = 512 * 1024 * 1024
_TRIES: Final = 5
_IN_TEXT: Final = frozenset({"markdown", "plain"})
_PRIVATE: Final = re.compile("HEARTHNET|KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)


class ReaderPool:
    """The reader processes of one service; a document may take `seconds`."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._idle: queue.LifoQueue[_Child] = queue.LifoQueue()
        self._places = threading.BoundedSemaphore(max(2, os.cpu_count() or 1))
        self._changing = threading.Lock()
        self._all: set[_Child] = set()
        self._closing = False

    def read(self, data: bytes, media_type: str, name: str | None, on_progress: OnProgress) -> Document:
        """Read the document in `data`; text formats are read in this process.

        Raises:
            HearthNetError: `bad_request`, with the reason in one line, if it cannot be read or takes too much
                time or memory; `partition` if the service is stopping; `internal_error` if no process can be
                started.
        """
        kind = kind_of(data, media_type, name)
        if kind in _IN_TEXT:
            return read_as(kind, data, name, on_progress)
        with self._places:
            return self._read(Job(kind, data, name, int(self._seconds) + 1), on_progress)

    def _read(self, job: Job, on_progress: OnProgress) -> Document:
        for _ in range(_TRIES):
            child = self._acquire()
            try:
                document = child.read(job, self._seconds, on_progress)
            except _ProcessEnded:  # the process had ended after its idle time
                self._forget(child)
            except HearthNetError:
                self._put_back(child)
                raise
            else:
                self._put_back(child)
                return document
        raise HearthNetError(
            "internal_error", "the process that reads documents cannot be started; see the log"
        )

    def close(self) -> None:
        """Kill all processes; reads in progress fail."""
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
                    raise stopped() from None
                child = _Child()
                self._all.add(child)
                return child

    def _put_back(self, child: _Child) -> None:
        if child.alive:
            self._idle.put(child)
        else:
            self._forget(child)
        if self._closing:
            raise stopped()

    def _forget(self, child: _Child) -> None:
        child.kill()
        with self._changing:
            self._all.discard(child)


class _ProcessEnded(Exception):
    """Raised when the process ended before it took the job."""


class _Child:
    """One reader process."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "hearthnet_rag.readers.worker_process"]
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

    def read(self, job: Job, seconds: float, on_progress: OnProgress) -> Document:
        """Read the document of `job`.

        Raises:
            HearthNetError: `bad_request` if it cannot be read or the process dies of it.
            _ProcessEnded: the process had ended before.
        """
        timer = threading.Timer(seconds, self._time_is_up)
        timer.daemon = True
        timer.start()
        try:
            return self._read(job, on_progress)
        except (OSError, ValueError) as error:  # the process has closed its end of the pipe
            raise _ProcessEnded from error
        finally:
            timer.cancel()

    def _read(self, job: Job, on_progress: OnProgress) -> Document:
        incoming, outgoing = cast("IO[bytes]", self._process.stdout), cast("IO[bytes]", self._process.stdin)
        send(outgoing, job)
        accepted = False
        while (data := receive(incoming, _MOST_BYTES)) is not None:
            match answer_decoder.decode(data):
                case Accepted():
                    accepted = True
                case ReadProgress(stage, current, total):
                    on_progress(stage, current, total)
                case Rejected(code, message, details):
                    raise HearthNetError(code, message, details=details)
                case ReadResult(document):
                    return document
        self.alive = False
        if not accepted and not self._late:
            raise _ProcessEnded
        raise self._ended(job)

    def _ended(self, job: Job) -> HearthNetError:
        """Return the error for a process that took a job and returned nothing."""
        if self._late:
            return rejected(job.name, f"takes more than {job.seconds - 1} seconds to read; split it")
        return rejected(job.name, "is broken, or takes too much to read: the reader gave up on it")

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
