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
            "hearthnet.bus.blobs.blob_store": "Blobs",
            "hearthnet.bus.blobs.metadata": "BlobRecord Hold",
            "hearthnet.bus.blobs.reader": "Blob DamagedBlob=Damaged",
            "hearthnet.bus.blobs.writer": "BlobWriter=Writer",
            "hearthnet.bus.bus": "find_contract",
            "hearthnet.bus.outbox": "Outbox",
            "hearthnet.bus.session.keyring": "load_identity",
            "hearthnet.bus.session.tracing": "UNTRACED record_path",
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
