"""Messages between service and reader process: four bytes of length, then MessagePack."""

from __future__ import annotations

from typing import IO, Any, Final

import msgspec

from hearthnet_rag.readers.content_type import Kind
from hearthnet_rag.readers.documents import Document

_LENGTH: Final = 4


class Job(msgspec.Struct, frozen=True):
    """A document to read, and its limit of processor time in seconds."""

    kind: Kind
    data: bytes
    name: str | None
    seconds: int


class Accepted(msgspec.Struct, frozen=True, tag="Took"):
    """Confirmation that the whole job has arrived."""


class ReadProgress(msgspec.Struct, frozen=True, tag="Progress"):
    """Progress of the reading."""

    stage: str
    current: int
    total: int


class ReadResult(msgspec.Struct, frozen=True, tag="Read"):
    """The document that was read."""

    document: Document


class Rejected(msgspec.Struct, frozen=True, tag="Refused"):
    """The error of a document that cannot be read."""

    code: str
    message: str
    details: dict[str, Any] = {}


Answer = Accepted | ReadProgress | ReadResult | Rejected
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
