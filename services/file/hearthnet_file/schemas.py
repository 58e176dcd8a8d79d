"""Params, inputs and stream messages of the capabilities of `file` (contracts/file.*)."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from hearthnet import HearthNetError

_Sent = TypeVar("_Sent")


class ReadInput(msgspec.Struct, frozen=True):
    """A blob, and a range of its chunks."""

    cid: str
    start: int = 0
    count: int | None = None


class ListInput(msgspec.Struct, frozen=True):
    """A part of the list of blobs."""

    prefix: str = "blake3:"
    after: str = ""
    limit: int = 1000


class ChunkId(msgspec.Struct, frozen=True):
    """Index and hash of one chunk."""

    i: int
    cid: str


class ManifestInput(msgspec.Struct, frozen=True):
    """Size and chunks of a blob; `chunks` may be only the beginning of the list."""

    cid: str
    size_bytes: int
    chunks: tuple[ChunkId, ...]


class PutInput(msgspec.Struct, frozen=True):
    """The content to put, its name, its visibility and its retention."""

    manifest: ManifestInput
    name: str = ""
    share: bool = False
    keep_seconds: int | None = None


class AdvertiseInput(msgspec.Struct, frozen=True):
    """The blobs that the caller's node keeps."""

    cids: tuple[str, ...]


class RemoveInput(msgspec.Struct, frozen=True):
    """The blob to release; with `all`, holds of other callers are released too."""

    cid: str
    all: bool = False


class ChunkSent(ChunkId, frozen=True):
    """One chunk, as a caller sends it during `file.put`."""

    data_b64: str


class HashesSent(msgspec.Struct, frozen=True):
    """The hashes of further chunks, as a caller sends them during `file.put`."""

    chunks: tuple[ChunkId, ...]


def sent(message: dict[str, Any], wanted: type[_Sent]) -> _Sent:
    """Return a message of the caller as `wanted`: a chunk or hashes.

    Raises:
        HearthNetError: `bad_request` if the message is something else.
    """
    try:
        return msgspec.convert(message, wanted)
    except msgspec.ValidationError as error:
        raise HearthNetError("bad_request", f"not what was asked for: {error}") from error
