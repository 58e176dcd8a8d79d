"""The context of a service: the node that it runs on."""

from __future__ import annotations

import asyncio

from hearthnet.bus.bus import Bus
from hearthnet.bus.store import Store
from hearthnet.core.config import Config
from hearthnet.core.home import Home
from hearthnet.service.effects.community_log import CommunityState
from hearthnet.service.effects.journal import Records
from hearthnet.service.effects.token_budget import Budget
from hearthnet.service.hosting.status import Status
from hearthnet.trust.keys import Identity


class NodeContext:
    """The node as its services see it.

    `data` folder, settings, bus, store, and the progress of the start; `records`, `budget` and `memory` are
    for the library.
    """

    def __init__(self, home: Home, config: Config, url: str, service: str, bus: Bus, status: Status) -> None:
        self.home = home
        self.config = config
        self.bus = bus
        self._url = url
        self._service = service
        self._status = status
        self._store: Store | None = None
        self._joining = asyncio.Lock()
        self.records = Records(home, bus.peer, service, self.store, config.audit)
        self.budget = Budget(self.store, bus.peer, self.records.instances)
        self.memory = CommunityState(self.store, home, bus.peer)
        self.data = home.service(service)
        self.data.mkdir(parents=True, exist_ok=True, mode=0o700)

    @property
    def identity(self) -> Identity:
        """The node's identity."""
        return self.bus.peer.identity

    def progress(self, stage: str, current: int, total: int) -> None:
        """Report the progress of the start, for the person who started the node."""
        self._status.starting(stage, current, total)

    async def store(self) -> Store:
        """Return the node's store, connected at first use."""
        async with self._joining:
            if self._store is None:
                self._store = await Store.join(self.home, self._url, f"{self._service} store")
            return self._store

    async def close(self) -> None:
        """Disconnect from bus and store."""
        await self.memory.close()
        await self.records.close()
        if self._store is not None:
            await self._store.close()
        await self.bus.close()
