"""The process that reads documents that are not text: bounded in memory and processor time, and expendable.

`python -m hearthnet_rag.readers.child` takes jobs on its standard input until that ends, or nothing comes for
a while.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import sys
import time
from typing import BinaryIO, Final

from hearthnet.errors import HearthNetError
from hearthnet_rag.documents import refused
from hearthnet_rag.readers import Told, read_as
from hearthnet_rag.readers.messages import (
    Answer,
    Job,
    Progress,
    Read,
    Refused,
    Took,
    job_decoder,
    receive,
    send,
)

MEMORY_BYTES: Final = 1536 * 1024 * 1024
IDLE_SECONDS: Final = 30.0
_MOST_BYTES: Final = 256 * 1024 * 1024
_EVERY_SECONDS: Final = 0.1


def main() -> None:
    """Reads for whoever holds the other end of standard input and output."""
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)  # what a library prints is no message
    _bound(resource.RLIMIT_AS, MEMORY_BYTES)
    while select.select([incoming], [], [], IDLE_SECONDS)[0] and serve(incoming, outgoing):
        pass


def serve(incoming: BinaryIO, outgoing: BinaryIO) -> bool:
    """Takes one job and answers it; False where none came."""
    data = receive(incoming, _MOST_BYTES)
    if data is None:
        return False
    send(outgoing, Took())
    job = job_decoder.decode(data)
    _bound(resource.RLIMIT_CPU, int(time.process_time()) + job.seconds)
    send(outgoing, _answer(job, _telling(outgoing)))
    return True


def _answer(job: Job, told: Told) -> Answer:
    try:
        return Read(read_as(job.kind, job.data, job.name, told))
    except HearthNetError as error:
        return _refused(error)
    except (MemoryError, RecursionError):
        return _refused(
            refused(job.name, "takes more memory to read than there is for one document; split it")
        )
    except (
        Exception
    ) as error:  # a parser met what it was not made for: a document is to blame, not the service
        return _refused(refused(job.name, f"is broken: reading it ended with {type(error).__name__}"))


def _refused(error: HearthNetError) -> Refused:
    return Refused(error.code, error.message, dict(error.details))


def _telling(outgoing: BinaryIO) -> Told:
    """Passes progress on, ten times a second at most, and each stage when it is done."""
    last = 0.0

    def told(stage: str, current: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if current == total or now - last >= _EVERY_SECONDS:
            last = now
            send(outgoing, Progress(stage, current, total))

    return told


def _bound(what: int, limit: int) -> None:
    """The limit, where the system knows it; never above what was set before."""
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(what)
        resource.setrlimit(what, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


if __name__ == "__main__":
    main()
    sys.exit(0)
