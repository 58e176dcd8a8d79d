"""Content named by its hash, in chunks that are proved one by one (docs/decisions/0080).

    up to one chunk    cid = BLAKE3(content)
    more               cid = BLAKE3, derive-key mode with `_CONTEXT`, of size (8 bytes, big-endian) and the
                             BLAKE3 of each chunk, in order

The two forms cannot collide: a list of hashes stored as content has another CID than the content it lists. A
chunk has 256 KiB, the last one the remainder; empty content has no chunk.
"""

from __future__ import annotations

import re
from typing import Final

import blake3
import msgspec

from hearthnet.core.errors import HearthNetError

CHUNK_BYTES: Final = 262_144
LARGEST_BYTES: Final = 4 * 1024**3
"""Maximum size of content with a CID."""
HASH_BYTES: Final = 32
_PREFIX: Final = "blake3:"
_CID: Final = re.compile(r"blake3:[0-9a-f]{64}")
_CONTEXT: Final = "hearthnet 2026 content in chunks v1"


def is_cid(text: str) -> bool:
    """Return whether `text` has the form of a CID."""
    return _CID.fullmatch(text) is not None


def chunk_hash(data: bytes | memoryview) -> bytes:
    """Return the 32-byte hash of one chunk."""
    return blake3.blake3(data).digest()


def cid_of(digest: bytes) -> str:
    """Return the CID of a 32-byte hash."""
    return _PREFIX + digest.hex()


def hash_of(cid: str) -> bytes:
    """Return the 32 bytes of a CID.

    Raises:
        HearthNetError: `bad_request` if `cid` is not a CID.
    """
    if not is_cid(cid):
        raise HearthNetError("bad_request", "a CID is blake3: and 64 hex characters")
    return bytes.fromhex(cid[len(_PREFIX) :])


def chunk_count(size: int) -> int:
    """Return the number of chunks of content of `size` bytes."""
    return -(-size // CHUNK_BYTES)


class Manifest(msgspec.Struct, frozen=True):
    """The parts of content: its size in bytes and the hashes of its chunks.

    `hashes` holds 32 bytes per chunk, in order.
    """

    size: int
    hashes: bytes

    @property
    def count(self) -> int:
        """The number of chunks."""
        return chunk_count(self.size)

    @property
    def cid(self) -> str:
        """The CID of the content."""
        if self.size == 0:
            return cid_of(chunk_hash(b""))
        if self.count == 1:
            return cid_of(self.hashes)
        root = blake3.blake3(derive_key_context=_CONTEXT)
        root.update(self.size.to_bytes(8, "big"))
        root.update(self.hashes)
        return cid_of(root.digest())

    def check(self, cid: str) -> None:
        """Check that this is the manifest of `cid`, and not of too much content.

        Raises:
            HearthNetError: `bad_request` if it is not.
        """
        if not 0 <= self.size <= LARGEST_BYTES:
            raise HearthNetError(
                "bad_request",
                f"the size of content is 0 to {LARGEST_BYTES} bytes",
                details={"size_bytes": self.size},
            )
        if len(self.hashes) != self.count * HASH_BYTES:
            raise HearthNetError(
                "bad_request",
                f"{self.size} bytes are {self.count} chunks, not {len(self.hashes) // HASH_BYTES}",
            )
        if self.cid != cid:
            raise HearthNetError("bad_request", f"these chunks and this size are not those of {cid[:23]}…")

    def length(self, index: int) -> int:
        """Return the number of bytes of chunk `index`."""
        return min(CHUNK_BYTES, self.size - index * CHUNK_BYTES)

    def hash(self, index: int) -> bytes:
        """Return the hash of chunk `index`."""
        return self.hashes[index * HASH_BYTES : (index + 1) * HASH_BYTES]

    def holds(self, index: int, data: bytes | memoryview) -> bool:
        """Return whether `data` is chunk `index`."""
        return (
            0 <= index < self.count
            and len(data) == self.length(index)
            and chunk_hash(data) == self.hash(index)
        )

    def cids(self, start: int, stop: int) -> list[str]:
        """Return the CIDs of the chunks from `start` up to, not including, `stop` or the end."""
        return [cid_of(self.hash(index)) for index in range(start, min(stop, self.count))]


def manifest_of(data: bytes) -> Manifest:
    """Return the manifest of `data`."""
    cutter = Cutter()
    chunks = [*cutter.feed(data), *cutter.end()]
    return Manifest(len(data), b"".join(map(chunk_hash, chunks)))


class Cutter:
    """A cutter of pieces of any size into chunks."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """Add `piece` and return the chunks that are full now."""
        if not self._rest and len(piece) == CHUNK_BYTES:
            return [piece]
        self._rest += piece
        full = len(self._rest) // CHUNK_BYTES * CHUNK_BYTES
        chunks = [bytes(self._rest[at : at + CHUNK_BYTES]) for at in range(0, full, CHUNK_BYTES)]
        del self._rest[:full]
        return chunks

    def end(self) -> list[bytes]:
        """Return the remainder: a last chunk, or none."""
        left, self._rest = bytes(self._rest), bytearray()
        return [left] if left else []
