"""The STORE account: JetStream of this server's operator, and blobs by their hash.

Only the processes of the node that runs the server hold its login. The supervisor alone creates streams and
buckets.

See: docs/protocol/subjects.md#stored-subjects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from hearthnet.bus.blobs import metadata
from hearthnet.bus.blobs.blob_store import Blobs
from hearthnet.bus.blobs.stream import BlobLink
from hearthnet.bus.session.keyring import load_identity
from hearthnet.core.home import Home
from hearthnet.core.node_state import read_node_state
from hearthnet.nats.jetstream_client import StoreLink

if TYPE_CHECKING:
    from nats.js import JetStreamContext

BLOBS: Final = metadata.BUCKET
CLAIMS: Final = "claims"
"""The key-value bucket of claims, each taken once."""


class Store:
    """A connection to the STORE account, without its blobs."""

    def __init__(self, link: StoreLink, home: Home | None = None) -> None:
        self.link = link
        self.js: JetStreamContext = link.client.jetstream(timeout=10)

    @classmethod
    async def connect(cls, home: Home, name: str) -> Self:
        """Connect to the store of the node that runs in `home`.

        Raises:
            HearthNetError: As `Bus.connect`.
        """
        return await cls.join(home, read_node_state(home).server.url, name)

    @classmethod
    async def join(cls, home: Home, url: str, name: str) -> Self:
        """Connect as `connect`, at a given address."""
        login = load_identity(home.device_key).store_login()
        return cls(await StoreLink.connect(url, login, name), home)

    async def close(self) -> None:
        """Disconnect from the store."""
        await self.link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class HomeStore(Store):
    """The store with all blobs of the home, for processes that act for the home alone.

    A service does not: it reads blobs by `NodeContext.open_blob`, with the rights of a call.
    """

    def __init__(self, link: StoreLink, home: Home | None = None) -> None:
        super().__init__(link, home)
        self.blobs = Blobs(BlobLink(self.js, link), home)

    async def put_blob(self, data: bytes) -> str:
        """Store `data` once for this home itself; return its CID."""
        return await self.blobs.put_bytes(data)
