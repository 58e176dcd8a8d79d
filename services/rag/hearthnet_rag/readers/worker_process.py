"""The reader process for formats other than text: expendable and bounded.

Its memory and processor time are limited. `python -m hearthnet_rag.readers.worker_process` takes jobs on its
standard input until that is closed, or until no job comes for a while.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import sys
import time
from typing import BinaryIO, Final

from hearthnet import HearthNetError
from hearthnet_rag.readers import OnProgress, read_as
from hearthnet_rag.readers.documents import rejected
from hearthnet_rag.readers.worker_ipc import (
    Accepted,
    Answer,
    Job,
    ReadProgress,
    ReadResult,
    Rejected,
    job_decoder,
    receive,
    send,
)

MEMORY_BYTES: Final = 1536 * 1024 * 1024
IDLE_SECONDS: Final = 30.0
_MOST_BYTES: Final = 256 * 1024 * 1024
_EVERY_SECONDS: Final = 0.1


def main() -> None:
    """Serve the process at the other end of standard input and output."""
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)  # output printed by a library must not mix with messages
    _bound(resource.RLIMIT_AS, MEMORY_BYTES)
    while select.select([incoming], [], [], IDLE_SECONDS)[0] and serve(incoming, outgoing):
        pass


def serve(incoming: BinaryIO, outgoing: BinaryIO) -> bool:
    """Process one job; return False if there was none."""
    data = receive(incoming, _MOST_BYTES)
    if data is None:
        return False
    send(outgoing, Accepted())
    job = job_decoder.decode(data)
    _bound(resource.RLIMIT_CPU, int(time.process_time()) + job.seconds)
    send(outgoing, _answer(job, _progress_sender(outgoing)))
    return True


def _answer(job: Job, on_progress: OnProgress) -> Answer:
    try:
        return ReadResult(read_as(job.kind, job.data, job.name, on_progress))
    except HearthNetError as error:
        return _refused(error)
    except (MemoryError, RecursionError):
        return _refused(
            rejected(job.name, "takes more memory to read than there is for one document; split it")
        )
    except Exception as error:
        # A parser failed on unexpected input: the fault is the document's, not the service's.
        return _refused(rejected(job.name, f"is broken: reading it ended with {type(error).__name__}"))


def _refused(error: HearthNetError) -> Rejected:
    return Rejected(error.code, error.message, dict(error.details))


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
            send(outgoing, ReadProgress(stage, current, total))

    return on_progress


def _bound(what: int, limit: int) -> None:
    """Set a resource limit if the system knows it; never raise a hard limit."""
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(what)
        resource.setrlimit(what, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


if __name__ == "__main__":
    main()
    sys.exit(0)
