"""The STORE account: JetStream of this server's operator, and blobs by their hash (wire.md, "Accounts and
subjects").

Only the processes of the node that runs the server hold its login. Streams and buckets are made by the
supervisor alone.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from hearthnet.bus.keyring import load_identity
from hearthnet.bus.store_link import StoreLink
from hearthnet.canonical import content_hash
from hearthnet.config import Home
from hearthnet.errors import HearthNetError
from hearthnet.node_state import read_node_state

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from nats.js.object_store import ObjectStore

BLOBS: Final = "blobs"
CLAIMS: Final = "claims"
"""The key-value bucket in which something is taken once."""


class Store:
    """A connection to the STORE account."""

    def __init__(self, link: StoreLink) -> None:
        self.link = link
        self.js: JetStreamContext = link.client.jetstream(timeout=10)
        self._blobs: ObjectStore | None = None

    @classmethod
    async def connect(cls, home: Home, name: str) -> Store:
        """Joins the store of the node that runs in `home`; errors as `Bus.connect`."""
        return await cls.join(home, read_node_state(home).server.url, name)

    @classmethod
    async def join(cls, home: Home, url: str, name: str) -> Store:
        """As `connect`, with the server's address given."""
        login = load_identity(home.device_key).store_login()
        return cls(await StoreLink.connect(url, login, name))

    async def put_blob(self, data: bytes) -> str:
        """Keeps `data` and returns its CID; what is already there is not written again."""
        from nats.js.errors import ObjectNotFoundError

        cid = content_hash(data)
        bucket = await self._bucket()
        try:
            await bucket.get_info(cid)
        except ObjectNotFoundError:
            await bucket.put(cid, data)
        return cid

    async def get_blob(self, cid: str) -> bytes:
        """The bytes of `cid`, checked against it; `not_found` where they are not kept here."""
        from nats.js.errors import ObjectNotFoundError

        bucket = await self._bucket()
        try:
            data = (await bucket.get(cid)).data or b""
        except ObjectNotFoundError as error:
            raise HearthNetError(
                "not_found", f"this node keeps no blob {cid[:23]}…; store it first"
            ) from error
        if content_hash(data) != cid:
            raise HearthNetError(
                "internal_error", f"the stored bytes of {cid[:23]}… are damaged; store them again"
            )
        return data

    async def close(self) -> None:
        """Leaves the store."""
        await self.link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _bucket(self) -> ObjectStore:
        if self._blobs is None:
            self._blobs = await self.js.object_store(BLOBS)
        return self._blobs
