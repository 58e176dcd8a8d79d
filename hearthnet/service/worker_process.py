"""An expendable process that carries out jobs for a service, within limits of memory and processor time.

`python -m hearthnet.service.worker_process MODULE:FUNCTION MEMORY_BYTES` calls the function with each job, as
bytes, and a function for progress; it returns the result as bytes. Jobs arrive on standard input until that
is closed, or until none arrives for a while. A message has four bytes of length, then MessagePack.

See: docs/decisions/0110.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import IO, Any, BinaryIO, Final

import msgspec

from hearthnet.core.errors import HearthNetError

OnProgress = Callable[[str, int, int], None]
"""Receives the name of a stage, the amount done, and the total amount."""
Handler = Callable[[bytes, OnProgress], bytes]
IDLE_SECONDS: Final = 30.0
_MOST_BYTES: Final = 256 * 1024 * 1024
_EVERY_SECONDS: Final = 0.1
_LENGTH: Final = 4


class Job(msgspec.Struct, frozen=True):
    """A job, and its limit of processor time in seconds."""

    body: bytes
    seconds: int


class Accepted(msgspec.Struct, frozen=True, tag="Took"):
    """Confirmation that the whole job has arrived."""


class JobProgress(msgspec.Struct, frozen=True, tag="Progress"):
    """Progress of the job."""

    stage: str
    current: int
    total: int


class JobResult(msgspec.Struct, frozen=True, tag="Result"):
    """The result of the job."""

    body: bytes


class Rejected(msgspec.Struct, frozen=True, tag="Refused"):
    """The error that the function raised for the job."""

    code: str
    message: str
    details: dict[str, Any] = {}


class JobFailed(msgspec.Struct, frozen=True, tag="Failed"):
    """The exception by which the job ended; `memory` tells that there was too little."""

    exception: str
    memory: bool


Answer = Accepted | JobProgress | JobResult | Rejected | JobFailed
_encoder: Final = msgspec.msgpack.Encoder()
job_decoder: Final = msgspec.msgpack.Decoder(Job)
answer_decoder: Final = msgspec.msgpack.Decoder(Answer)


def send(pipe: IO[bytes], message: Job | Answer) -> None:
    """Write one message."""
    data = _encoder.encode(message)
    pipe.write(len(data).to_bytes(_LENGTH, "big"))
    pipe.write(data)
    pipe.flush()


def receive(pipe: IO[bytes], most: int) -> bytes | None:
    """Return the next message, or None at the end.

    A truncated message and one longer than `most` bytes count as the end.
    """
    head = pipe.read(_LENGTH)
    length = int.from_bytes(head, "big")
    if len(head) < _LENGTH or length > most:
        return None
    data = pipe.read(length)
    return data if len(data) == length else None


def main(name: str, memory_bytes: int) -> None:
    """Serve the process at the other end of standard input and output."""
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)  # output printed by a library must not mix with messages
    _bound(resource.RLIMIT_AS, memory_bytes)
    module, _, function = name.partition(":")
    handler: Handler = getattr(import_module(module), function)
    while select.select([incoming], [], [], IDLE_SECONDS)[0] and serve(incoming, outgoing, handler):
        pass


def serve(incoming: BinaryIO, outgoing: BinaryIO, handler: Handler) -> bool:
    """Process one job; return False if there was none."""
    data = receive(incoming, _MOST_BYTES)
    if data is None:
        return False
    send(outgoing, Accepted())
    job = job_decoder.decode(data)
    del data
    _bound(resource.RLIMIT_CPU, int(time.process_time()) + job.seconds)
    send(outgoing, _answer(job, handler, _progress_sender(outgoing)))
    return True


def _answer(job: Job, handler: Handler, on_progress: OnProgress) -> Answer:
    try:
        return JobResult(handler(job.body, on_progress))
    except HearthNetError as error:
        return Rejected(error.code, error.message, dict(error.details))
    except Exception as error:
        # A parser failed on unexpected input: the fault is the input's, not the service's.
        return JobFailed(type(error).__name__, isinstance(error, MemoryError | RecursionError))


def _progress_sender(outgoing: BinaryIO) -> OnProgress:
    """Return a function that sends progress at most ten times a second.

    The end of each stage is always sent.
    """
    last = 0.0

    def on_progress(stage: str, current: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if current == total or now - last >= _EVERY_SECONDS:
            last = now
            send(outgoing, JobProgress(stage, current, total))

    return on_progress


def _bound(what: int, limit: int) -> None:
    """Set a resource limit if the system knows it; never raise a hard limit."""
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(what)
        resource.setrlimit(what, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
    sys.exit(0)
