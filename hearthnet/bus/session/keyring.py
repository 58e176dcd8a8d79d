"""Files of a node's keys: identities and rosters, and marks of verified frames.

Keys and rosters are checked when read, written once and never overwritten.

Announcements and finds reach every subscribed process of a node, and verifying a signature costs more than
all other work on such a frame. So the first process to verify one leaves a mark for the others in a small
shared file: 16 bytes of a MAC over the signer and the whole frame. Its key is derived from the node's own
key, so no other node can forge a mark. A lost mark costs one more verification.

See: docs/protocol/identity.md#key-file, docs/protocol/frames.md#event-frames.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

import blake3

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity


def load_identity(path: Path) -> Identity:
    """Load the identity in a key file.

    Raises:
        HearthNetError: `not_found` if there is none; `unauthorized` if other users may read it; `bad_request`
            if it is damaged.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = path.read_text("ascii", "replace")  # damaged bytes are judged with the rest of the text
    except FileNotFoundError as error:
        raise HearthNetError("not_found", f"no key at {path}; `hearthnet up` makes one") from error
    except OSError as error:
        raise HearthNetError("bad_request", f"cannot read the key {path}: {error.strerror}") from error
    if mode & 0o077:
        raise HearthNetError("unauthorized", f"the key {path} can be read by others; run: chmod 600 {path}")
    try:
        return Identity.from_text(text)
    except HearthNetError as error:
        raise HearthNetError(
            "bad_request",
            f"the key {path} {error.message}; put back a copy of it, or move it away for a new identity",
        ) from error


def create_identity(path: Path) -> Identity:
    """Make a new identity and save it under `path` with mode 0600.

    Raises:
        FileExistsError: The file exists.
    """
    identity = Identity.generate()
    write_new(path, identity.to_text().encode("ascii"))
    return identity


def load_roster(path: Path, own: str = "") -> Roster:
    """Load the verified roster in `path`; a seal of the node `own` saves verifying events.

    Raises:
        HearthNetError: `not_found`, `bad_request` or `invalid_signature`, naming the file.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise HearthNetError(
            "not_found", f"no roster at {path}; `hearthnet up` founds a community"
        ) from error
    except OSError as error:
        raise HearthNetError("bad_request", f"cannot read the roster {path}: {error.strerror}") from error
    try:
        return rosters.decode(data, own)
    except HearthNetError as error:
        raise HearthNetError(
            error.code,
            f"the roster {path} {error.message}; put back a copy, or move it away to found a new community",
        ) from error


def write_new(path: Path, data: bytes) -> None:
    """Write `data` to a new file of mode 0600, durably and atomically.

    Raises:
        FileExistsError: The file exists.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists():
        raise FileExistsError(path)
    write_whole(path, data, durable=True)


_BYTES: Final = 16
_SHELF: Final = 4 * _BYTES
_SHELVES: Final = 512
"""32 KiB: more marks than all processes of a node need between the first and the last reader."""


class VerificationCache:
    """The marks of one node in `path`; empty if the file cannot be opened.

    Read and written with system calls, not mapped: a truncated file, or a full disk, then costs a
    verification and not the process.
    """

    def __init__(self, identity: Identity, path: Path) -> None:
        self._keyed = blake3.blake3(key=identity.marks_key())
        self._file: int | None = None
        with contextlib.suppress(OSError):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def known(self, signer: str, frame: bytes) -> bool:
        """Return whether a process of this node verified `frame` as one of `signer`."""
        if self._file is None:
            return False
        mark, place = self._mark(signer, frame)
        try:
            return mark in os.pread(self._file, _SHELF, place)
        except OSError:
            return False

    def add(self, signer: str, frame: bytes) -> None:
        """Leave a mark for the other processes, in place of the oldest one beside it."""
        if self._file is not None:
            mark, place = self._mark(signer, frame)
            with contextlib.suppress(OSError):
                shelf = os.pread(self._file, _SHELF, place).ljust(_SHELF, b"\x00")
                os.pwrite(self._file, mark + shelf[:-_BYTES], place)

    def close(self) -> None:
        """Close the file; nothing is known or added from then on."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _mark(self, signer: str, frame: bytes) -> tuple[bytes, int]:
        hasher = self._keyed.copy()
        hasher.update(ids.public_key(signer) + frame)
        found = hasher.digest(_BYTES + 2)
        return found[:_BYTES], int.from_bytes(found[_BYTES:], "big") % _SHELVES * _SHELF
