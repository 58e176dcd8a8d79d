"""The bus over NATS: connection, discovery, routing, calls, streams and stored content.

See: docs/protocol/README.md#layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthnet.core.lazy_import import lazy

if TYPE_CHECKING:
    from hearthnet.bus.blobs.blob_store import Blobs
    from hearthnet.bus.blobs.metadata import BlobRecord, Hold
    from hearthnet.bus.blobs.reader import Blob
    from hearthnet.bus.blobs.reader import Damaged as DamagedBlob
    from hearthnet.bus.blobs.writer import Writer as BlobWriter
    from hearthnet.bus.bus import find_contract
    from hearthnet.bus.outbox import Outbox
    from hearthnet.bus.session.keyring import load_identity
    from hearthnet.bus.session.tracing import UNTRACED, record_path
else:
    __getattr__ = lazy(
        __name__,
        {
            "Blob": "hearthnet.bus.blobs.reader",
            "BlobRecord": "hearthnet.bus.blobs.metadata",
            "BlobWriter": "hearthnet.bus.blobs.writer:Writer",
            "Blobs": "hearthnet.bus.blobs.blob_store",
            "DamagedBlob": "hearthnet.bus.blobs.reader:Damaged",
            "Hold": "hearthnet.bus.blobs.metadata",
            "Outbox": "hearthnet.bus.outbox",
            "UNTRACED": "hearthnet.bus.session.tracing",
            "find_contract": "hearthnet.bus.bus",
            "load_identity": "hearthnet.bus.session.keyring",
            "record_path": "hearthnet.bus.session.tracing",
        },
    )

__all__ = [
    "UNTRACED",
    "Blob",
    "BlobRecord",
    "BlobWriter",
    "Blobs",
    "DamagedBlob",
    "Hold",
    "Outbox",
    "find_contract",
    "load_identity",
    "record_path",
]
