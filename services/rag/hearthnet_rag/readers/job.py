"""The reading of one document as a job for another process: what goes there and what comes back."""

from __future__ import annotations

from typing import Final

import msgspec

from hearthnet_rag.readers import OnProgress, read_as
from hearthnet_rag.readers.content_type import Kind
from hearthnet_rag.readers.documents import Document


class ReadJob(msgspec.Struct, frozen=True):
    """A document to read."""

    kind: Kind
    data: bytes
    name: str | None


encoder: Final = msgspec.msgpack.Encoder()
document_decoder: Final = msgspec.msgpack.Decoder(Document)
_job_decoder: Final = msgspec.msgpack.Decoder(ReadJob)


def read_job(job: bytes, on_progress: OnProgress) -> bytes:
    """Return the document of an encoded `ReadJob`, encoded; raises as `read_as`."""
    wanted = _job_decoder.decode(job)
    return encoder.encode(read_as(wanted.kind, wanted.data, wanted.name, on_progress))
