"""Frames that a process of this node has proved, for its other processes.

Announcements and finds reach every process of a node that listens, and proving a signature costs more than
all the rest that is done with such a frame. So the first one to prove it leaves a mark for the others in a
small file that they share: 16 bytes of a MAC over the signer and the whole frame. Its key follows from the
node's own key, so nobody else can leave a mark that counts. A mark that is lost costs one more proof.

See: docs/protocol/frames.md#event-frames.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

import blake3

from hearthnet import ids
from hearthnet.trust.keys import Identity

_BYTES: Final = 16
_SHELF: Final = 4 * _BYTES
_SHELVES: Final = 512
"""32 KiB: more than all processes of a node hear between the first and the last of them."""


class Proved:
    """The marks of one node in `path`; where its folder is not there, or no file can be, nothing is known.

    They are read and written with system calls and not mapped: a file that was cut off, or has no room to
    grow, then costs a proof and not the process.
    """

    def __init__(self, identity: Identity, path: Path) -> None:
        self._keyed = blake3.blake3(key=identity.marks_key())
        self._file: int | None = None
        with contextlib.suppress(OSError):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def known(self, signer: str, frame: bytes) -> bool:
        """Whether a process of this node found `frame` to be from `signer`, whole and unambiguous."""
        if self._file is None:
            return False
        mark, place = self._mark(signer, frame)
        try:
            return mark in os.pread(self._file, _SHELF, place)
        except OSError:
            return False

    def add(self, signer: str, frame: bytes) -> None:
        """Tells the others that it is; the oldest mark beside it makes room."""
        if self._file is not None:
            mark, place = self._mark(signer, frame)
            with contextlib.suppress(OSError):
                shelf = os.pread(self._file, _SHELF, place).ljust(_SHELF, b"\x00")
                os.pwrite(self._file, mark + shelf[:-_BYTES], place)

    def close(self) -> None:
        """Tells and knows nothing any more."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _mark(self, signer: str, frame: bytes) -> tuple[bytes, int]:
        hasher = self._keyed.copy()
        hasher.update(ids.public_key(signer) + frame)
        found = hasher.digest(_BYTES + 2)
        return found[:_BYTES], int.from_bytes(found[_BYTES:], "big") % _SHELVES * _SHELF
