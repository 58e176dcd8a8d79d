"""The bytes between nodes: frames, headers, subjects, replay and streams, without any I/O.

See: docs/protocol/README.md#layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthnet.core.lazy_import import lazy

if TYPE_CHECKING:
    from hearthnet.protocol.header import decode as decode_header
    from hearthnet.protocol.manifest import CHUNK_BYTES, LARGEST_BYTES, Manifest, hash_of, is_cid
else:
    __getattr__ = lazy(
        __name__,
        {
            "hearthnet.protocol.header": "decode_header=decode",
            "hearthnet.protocol.manifest": "CHUNK_BYTES LARGEST_BYTES Manifest hash_of is_cid",
        },
    )

__all__ = [
    "CHUNK_BYTES",
    "LARGEST_BYTES",
    "Manifest",
    "decode_header",
    "hash_of",
    "is_cid",
]
