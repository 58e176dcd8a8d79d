"""The reading of one document as a job for another process: what goes there and what comes back."""

from __future__ import annotations

from typing import Final

import msgspec

from hearthnet_rag.readers import OnProgress, read_document
from hearthnet_rag.readers.documents import Document


class ReadJob(msgspec.Struct, frozen=True):
    """A document to read."""

    data: bytes
    media_type: str
    name: str | None


encoder: Final = msgspec.msgpack.Encoder()
document_decoder: Final = msgspec.msgpack.Decoder(Document)
_job_decoder: Final = msgspec.msgpack.Decoder(ReadJob)


def read_job(job: bytes, on_progress: OnProgress) -> bytes:
    """Return the document of an encoded `ReadJob`, encoded; raises as `read_document`."""
    wanted = _job_decoder.decode(job)
    return encoder.encode(read_document(wanted.data, wanted.media_type, wanted.name, on_progress))
