"""The key by which a home makes its backups, in `keys/backup.key`.

It opens no backup. It names chunks, so that unchanged ones are recognised, and it has the person's statement
that this node makes backups for them: without one, a person id would be enough to make a backup that looks
like the person's. The recovery key signs it once; then it can stay on paper.

See: docs/protocol/backup.md#backup-key.
"""

from __future__ import annotations

import os
import stat
from typing import Final

import blake3
import msgspec
from nacl import bindings

from hearthnet.core import ids
from hearthnet.core.canonical_json import content_hash, read_json
from hearthnet.core.errors import HearthNetError, InvalidRequest, NotFound, Unauthorized
from hearthnet.core.files import sync_folder, write_whole
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.trust import signed_document
from hearthnet.trust.keys import Identity

PURPOSE: Final = "backup writer"
_CHUNK_CONTEXT: Final = "hearthnet 2026 backup chunk"
_ZERO_NONCE: Final = bytes(bindings.crypto_aead_xchacha20poly1305_ietf_NPUBBYTES)
"""Each chunk key encrypts one content only, so that its nonce needs no variety."""
_NO_KEY: Final = (
    "this home has no recovery key, for which a backup would be sealed; where the key is on paper: "
    "hearthnet backup allow"
)


class WriterStatement(signed_document.Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The person's word that `node` makes backups for them; signed by the recovery key."""

    person: str
    node: str
    time: int
    v: int = 1


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `keys/backup.key`."""

    seed: str
    writer: WriterStatement
    v: int = 1


_DECODER: Final = msgspec.json.Decoder(_File)


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """A chunk of a backup: the hash of its sealed form, the key that opens it, and its size in plain."""

    name: str
    key: str
    size: int


class BackupKey:
    """The key of one home."""

    def __init__(self, seed: bytes, writer: WriterStatement) -> None:
        self.writer: Final = writer
        self._keyed = blake3.blake3(key=blake3.blake3(seed, derive_key_context=_CHUNK_CONTEXT).digest())

    def sealed(self, content: bytes) -> tuple[Chunk, bytes]:
        """Return the chunk of `content`, and its sealed form.

        The same content gives the same chunk, so that it is stored once. Its key follows from the content and
        this key, so that neither of them alone opens it.
        """
        keyed = self._keyed.copy()
        key = keyed.update(content).digest()
        sealed = seal(content, key)
        return Chunk(content_hash(sealed), ids.b64(key), len(content)), sealed


def seal(content: bytes, key: bytes) -> bytes:
    """Encrypt `content` with a key that encrypts nothing else."""
    return bytes(bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(content, None, _ZERO_NONCE, key))


def unseal(sealed: bytes, key: bytes) -> bytes:
    """Decrypt what `seal` returned.

    Raises:
        HearthNetError: `invalid_signature` if it was altered, or encrypted with another key.
    """
    try:
        return bytes(bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(sealed, None, _ZERO_NONCE, key))
    except Exception as error:
        raise Unauthorized("was altered", code="invalid_signature") from error


def load(home: Home, node: str) -> BackupKey:
    """Return the key of the home whose node is `node`, made with the recovery key where it is missing.

    Raises:
        HearthNetError: `not_found` if there is neither the key nor a recovery key; `bad_request` if the file
            is damaged or of another node; `unauthorized` if other users may read it.
    """
    try:
        mode, data = stat.S_IMODE(home.backup_key.stat().st_mode), home.backup_key.read_bytes()
    except FileNotFoundError:
        return make(home, node, recovery_key(home))
    if mode & 0o077:
        raise Unauthorized(f"{home.backup_key} can be read by others; run: chmod 600 {home.backup_key}")
    try:
        found = read_json(data, _DECODER)
        check_writer(found.writer, node)
        return BackupKey(ids.unb64(found.seed), found.writer)
    except HearthNetError as error:
        raise InvalidRequest(
            f"{home.backup_key} is damaged, or of another node; move it away, and run: hearthnet backup allow"
        ) from error


def recovery_key(home: Home) -> Identity:
    """Return the recovery key, where it is on this computer.

    Raises:
        HearthNetError: `not_found` if it is not.
    """
    from hearthnet.bus.session.keyring import load_identity

    path = home.recovery_key
    if not path.exists():
        raise NotFound(_NO_KEY)
    return load_identity(path)


def make(home: Home, node: str, recovery: Identity) -> BackupKey:
    """Make the key of the home whose node is `node`, for the person of the recovery key, and write it."""
    unsigned = WriterStatement(person=recovery.node_id, node=node, time=now_ms())
    writer = signed_document.sign(unsigned, recovery, PURPOSE)
    seed = os.urandom(32)
    home.keys.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(home.backup_key, msgspec.json.encode(_File(ids.b64(seed), writer)) + b"\n", durable=True)
    sync_folder(home.keys)
    return BackupKey(seed, writer)


def check_writer(writer: WriterStatement, node: str) -> None:
    """Check that the person of the statement signed it for `node`.

    Raises:
        HearthNetError: `invalid_signature` or `bad_request` if not.
    """
    if writer.node != node or writer.v != 1:
        raise InvalidRequest("the statement is for another node")
    signed_document.check(writer, writer.person, PURPOSE)
