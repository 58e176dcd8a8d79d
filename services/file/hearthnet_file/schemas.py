"""Params, inputs and stream messages of the capabilities of `file` (contracts/file.*)."""

from __future__ import annotations

import base64
import binascii
from typing import Any, TypeVar

import msgspec

from hearthnet import HearthNetError

_Sent = TypeVar("_Sent")


class NoParams(msgspec.Struct, frozen=True):
    """Empty params."""


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


class ChunkSent(msgspec.Struct, frozen=True):
    """One chunk, as a caller sends it during `file.put`."""

    i: int
    cid: str
    data_b64: str


class HashesSent(msgspec.Struct, frozen=True):
    """The hashes of further chunks, as a caller sends them during `file.put`."""

    chunks: tuple[ChunkId, ...]


def chunk_sent(said: dict[str, Any]) -> ChunkSent:
    """Return the chunk in a message of the caller.

    Raises:
        HearthNetError: `bad_request` if the message is something else.
    """
    return _sent(said, ChunkSent)


def hashes_sent(said: dict[str, Any]) -> HashesSent:
    """Return the hashes in a message of the caller.

    Raises:
        HearthNetError: `bad_request` if the message is something else.
    """
    return _sent(said, HashesSent)


def as_text(data: bytes) -> str:
    """Return bytes as base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def as_bytes(text: str) -> bytes:
    """Return the bytes of base64url without padding.

    Raises:
        HearthNetError: `bad_request` if the text is not base64url.
    """
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise HearthNetError("bad_request", f"data_b64 is base64url without padding: {error}") from error


def _sent(said: dict[str, Any], wanted: type[_Sent]) -> _Sent:
    try:
        return msgspec.convert(said, wanted)
    except msgspec.ValidationError as error:
        raise HearthNetError("bad_request", f"not what was asked for: {error}") from error
