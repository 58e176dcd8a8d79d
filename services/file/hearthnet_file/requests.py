"""What the capabilities of `file` are asked for (contracts/file.*)."""

from __future__ import annotations

import base64
import binascii
from typing import Any, TypeVar

import msgspec

from hearthnet.errors import HearthNetError

_Sent = TypeVar("_Sent")


class NoParams(msgspec.Struct, frozen=True):
    """No params."""


class ReadInput(msgspec.Struct, frozen=True):
    """Which blob, and which of its chunks."""

    cid: str
    start: int = 0
    count: int | None = None


class ListInput(msgspec.Struct, frozen=True):
    """Which part of the list."""

    prefix: str = "blake3:"
    after: str = ""
    limit: int = 1000


class ChunkId(msgspec.Struct, frozen=True):
    """The hash of one chunk."""

    i: int
    cid: str


class ManifestInput(msgspec.Struct, frozen=True):
    """What a blob consists of, or the beginning of it."""

    cid: str
    size_bytes: int
    chunks: tuple[ChunkId, ...]


class PutInput(msgspec.Struct, frozen=True):
    """What is put, and for how long and whom it is kept."""

    manifest: ManifestInput
    name: str = ""
    share: bool = False
    keep_seconds: int | None = None


class AdvertiseInput(msgspec.Struct, frozen=True):
    """What the caller's node keeps."""

    cids: tuple[str, ...]


class RemoveInput(msgspec.Struct, frozen=True):
    """What the caller does not hold any more."""

    cid: str
    all: bool = False


class ChunkSent(msgspec.Struct, frozen=True):
    """One chunk, as a caller sends it while it puts."""

    i: int
    cid: str
    data_b64: str


class HashesSent(msgspec.Struct, frozen=True):
    """The hashes of more chunks."""

    chunks: tuple[ChunkId, ...]


def chunk_sent(said: dict[str, Any]) -> ChunkSent:
    """A chunk in an input; `bad_request` for anything else."""
    return _sent(said, ChunkSent)


def hashes_sent(said: dict[str, Any]) -> HashesSent:
    """Hashes in an input; `bad_request` for anything else."""
    return _sent(said, HashesSent)


def as_text(data: bytes) -> str:
    """Bytes as base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def as_bytes(text: str) -> bytes:
    """The bytes of base64url without padding; `bad_request` for what is none."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise HearthNetError("bad_request", f"data_b64 is base64url without padding: {error}") from error


def _sent(said: dict[str, Any], wanted: type[_Sent]) -> _Sent:
    try:
        return msgspec.convert(said, wanted)
    except msgspec.ValidationError as error:
        raise HearthNetError("bad_request", f"not what was asked for: {error}") from error
