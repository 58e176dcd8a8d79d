"""The store of large results: the blobs of the home.

See: docs/protocol/agent.md#large-results.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Self

from hearthnet.bus.blobs.blob_store import Blobs
from hearthnet.bus.blobs.metadata import Hold
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms

if TYPE_CHECKING:
    from hearthnet.bus.store import HomeStore

HOLD_MS: Final = 24 * 3600 * 1000
_PIECE: Final = 256 * 1024


class HomeResults:
    """The results of runs in the blobs of the node in `home`, connected at the first use.

    They are kept for a day, for the principal of the run.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._store: HomeStore | None = None
        self._lock = asyncio.Lock()

    async def put(self, data: bytes, by: str) -> str:
        """Store a result of the principal `by` and return its CID.

        Raises as `Blobs.put` and `HomeStore.connect`.
        """
        hold = Hold(by, name="result of a tool", until=now_ms() + HOLD_MS)
        pieces = (data[at : at + _PIECE] for at in range(0, len(data), _PIECE))
        return await (await self._blobs()).put(pieces, hold)

    async def read(self, cid: str, offset: int, length: int) -> tuple[bytes, int]:
        """Return a part of a result, and its whole size. Also raises as `HomeStore.connect`.

        Raises:
            HearthNetError: `not_found` if it is no longer stored.
        """
        blob = await (await self._blobs()).open(cid)
        return await blob.read(min(offset, blob.size), length), blob.size

    async def _blobs(self) -> Blobs:
        from hearthnet.bus.store import HomeStore

        async with self._lock:
            if self._store is None:
                self._store = await HomeStore.connect(self._home, "results of tools")
        return self._store.blobs

    async def close(self) -> None:
        """Close the connection to the store, if there is one."""
        if self._store is not None:
            await self._store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
