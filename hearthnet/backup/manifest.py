"""The manifest of a backup: a signed header in plain, and an index for the person alone.

    {"v": 1, "id": ..., "sealed": ..., "chunks": [...], "signature": ...} LF    header, signed by the node
    <bytes>                                                                     index, encrypted

The key of the index is new for each backup and sealed for the recovery key; the index has the key of each
chunk. So who finds a backup learns sizes and times, and who takes the home cannot read its older backups.

See: docs/protocol/backup.md#manifest.
"""

from __future__ import annotations

import os
from typing import Any, Final

import msgspec

from hearthnet.backup import backup_key
from hearthnet.backup.backup_key import Chunk, WriterStatement
from hearthnet.core import ids
from hearthnet.core.canonical_json import canonical_json, content_hash, read_json
from hearthnet.core.errors import HearthNetError, InvalidRequest, Unauthorized
from hearthnet.trust import signed_document
from hearthnet.trust.keys import Identity, seal_for

PURPOSE: Final = "backup"
VERSION: Final = 1
MAX_HEADER_BYTES: Final = 256 * 1024 * 1024


class File(msgspec.Struct, frozen=True):
    """A file of the home: path, mode, size, and the places of its chunks in the list of the index."""

    path: str
    mode: int
    size: int
    chunks: tuple[int, ...]


class Index(msgspec.Struct, frozen=True):
    """The content of a backup; `left_out` are the paths that a restored home does without."""

    files: tuple[File, ...]
    chunks: tuple[Chunk, ...]
    left_out: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """The size of all files together."""
        return sum(file.size for file in self.files)


class Header(signed_document.Signed, frozen=True, kw_only=True):
    """The signed header; `chunks` are the names of all chunks, `size` the bytes of all files.

    `time` is the moment of the copy in Unix milliseconds, `pause_ms` the time for which the node stood still
    for it.
    """

    id: str
    node: str
    person: str
    display_name: str
    time: int
    hearthnet: str
    writer: WriterStatement
    sealed: str
    index: str
    chunks: tuple[str, ...]
    files: int
    size: int
    pause_ms: int
    v: int = VERSION


_HEADER: Final = msgspec.json.Decoder(Header)
_INDEX: Final = msgspec.json.Decoder(Index)


def write(header: dict[str, Any], index: Index, identity: Identity, writer: WriterStatement) -> bytes:
    """Return the manifest with the fields of `header`, signed by the node and sealed for the person."""
    key = os.urandom(32)
    sealed_index = backup_key.seal(msgspec.json.encode(index), key)
    unsigned = Header(
        **header,
        node=identity.node_id,
        person=writer.person,
        writer=writer,
        sealed=ids.b64(seal_for(writer.person, key)),
        index=content_hash(sealed_index),
        chunks=tuple(sorted({chunk.name for chunk in index.chunks})),
        files=len(index.files),
        size=index.bytes,
    )
    signed = signed_document.sign(unsigned, identity, PURPOSE)
    return canonical_json(signed.as_json()) + b"\n" + sealed_index


def read(data: bytes) -> tuple[Header, bytes]:
    """Return the header of a manifest, whose signatures are checked, and the encrypted index.

    Raises:
        HearthNetError: `not_implemented` for one of a newer version; `bad_request` for one that is truncated,
            `invalid_signature` for one that was altered.
    """
    line, _, sealed_index = data.partition(b"\n")
    try:
        version = msgspec.json.decode(line, type=dict[str, Any]).get("v")
    except msgspec.DecodeError as error:
        raise InvalidRequest("is truncated or damaged; take an earlier backup") from error
    if type(version) is int and version > VERSION:
        raise HearthNetError(
            "not_implemented",
            f"is of version {version}, this HearthNet reads {VERSION}; install a newer HearthNet",
        )
    try:
        header = read_json(line, _HEADER)
        signed_document.check(header, header.node, PURPOSE)
        backup_key.check_writer(header.writer, header.node)
    except HearthNetError as error:
        raise Unauthorized("was altered; take an earlier backup", code="invalid_signature") from error
    if header.writer.person != header.person or content_hash(sealed_index) != header.index:
        raise Unauthorized("is truncated or was altered; take an earlier backup", code="invalid_signature")
    return header, sealed_index


def open_index(header: Header, sealed_index: bytes, recovery: Identity) -> Index:
    """Return the index of a backup, with the recovery key of its person.

    Raises:
        HearthNetError: `unauthorized` for a backup of another person; `invalid_signature` for an altered one.
    """
    if recovery.node_id != header.person:
        raise Unauthorized(
            f"is of the person {ids.short_id(header.person)}, and these are the words of "
            f"{ids.short_id(recovery.node_id)}; look for the right sheet"
        )
    key = recovery.unseal(ids.unb64(header.sealed))
    index = read_json(backup_key.unseal(sealed_index, key), _INDEX)
    _check(index, header)
    return index


def _check(index: Index, header: Header) -> None:
    """Check that the index names the chunks of the header, and no file outside the home."""
    for file in index.files:
        parts = file.path.split("/")
        if not parts or any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise InvalidRequest("names a file outside the home")
    if {chunk.name for chunk in index.chunks} != set(header.chunks):
        raise Unauthorized(
            "does not name the chunks that it has; take an earlier backup", code="invalid_signature"
        )
