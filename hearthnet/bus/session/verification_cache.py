"""Frames whose signature another process of this node has verified.

Announcements and finds reach every subscribed process of a node, and verifying a signature costs more than
all other work on such a frame. So the first process to verify one leaves a mark for the others in a small
shared file: 16 bytes of a MAC over the signer and the whole frame. Its key is derived from the node's own
key, so no other node can forge a mark. A lost mark costs one more verification.

See: docs/protocol/frames.md#event-frames.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

import blake3

from hearthnet.core import ids
from hearthnet.trust.keys import Identity

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
