"""Reading of documents in separate processes, so that no document can crash or stop the service."""

from __future__ import annotations

import os
from typing import Final

from hearthnet import HearthNetError
from hearthnet.service import WorkerPool
from hearthnet_rag.readers import OnProgress
from hearthnet_rag.readers.documents import Document, rejected
from hearthnet_rag.readers.job import ReadJob, document_decoder, encoder

SECONDS: Final = 120.0
"""Limit for one document, of elapsed time as well as of processor time."""
MEMORY_BYTES: Final = 1536 * 1024 * 1024


class ReaderPool:
    """The reader processes of one service, one for each processor and at least two.

    A document may take `seconds`. Calls block, and may come from any thread.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self.workers = WorkerPool(
            "hearthnet_rag.readers.job:read_job",
            memory_bytes=MEMORY_BYTES,
            seconds=seconds,
            places=max(2, os.cpu_count() or 1),
        )

    def read(self, data: bytes, media_type: str, name: str | None, on_progress: OnProgress) -> Document:
        """Read the document in `data`, of which nothing is looked at in this process.

        Raises:
            HearthNetError: `bad_request`, with the reason in one line, if it cannot be read or takes too much
                time or memory; `partition` if the service is stopping; `internal_error` if no process can be
                started.
        """

        def failed(failure: str, exception: str) -> HearthNetError:
            return rejected(name, self._reason(failure, exception))

        job = encoder.encode(ReadJob(data, media_type, name))
        return document_decoder.decode(self.workers.run(job, failed, on_progress))

    def _reason(self, failure: str, exception: str) -> str:
        """Return why a document could not be read, in words for a person."""
        match failure:
            case "time":
                return f"takes more than {int(self._seconds)} seconds to read; split it"
            case "memory":
                return "takes more memory to read than there is for one document; split it"
            case _ if exception:
                return f"is broken: reading it ended with {exception}"
            case _:
                return "is broken, or takes too much to read: the reader gave up on it"

    def close(self) -> None:
        """Kill all processes; reads in progress fail."""
        self.workers.close()
