"""The lists of runs for a gateway's clients: of this node, and of the other nodes of its owner."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Set
from typing import Any, Final, NamedTuple

from hearthnet.agent.devices.other_devices import OtherDevices
from hearthnet.agent.persistence.run_store import RunStore
from hearthnet.agent.persistence.saved_runs import SavedRuns, no_run
from hearthnet.gateway.auth.clients import Client

FRESH_MS: Final = 30_000
"""The time for which a list is valid: offers may change, and with them the approvals to sign."""
_MOST: Final = 256


class _List(NamedTuple):
    mark: int
    made_at: int
    until: int
    runs: list[dict[str, Any]]


class RunListCache:
    """The lists of a gateway's clients."""

    def __init__(self, store: RunStore, clock: Callable[[], int]) -> None:
        """Create the cache; `clock` returns milliseconds since the epoch."""
        self._store = store
        self._clock = clock
        self._lists: OrderedDict[tuple[str, str, bool], _List] = OrderedDict()

    async def get(
        self, client: Client, make: Callable[[Client], Awaitable[list[dict[str, Any]]]]
    ) -> list[dict[str, Any]]:
        """Return the client's list, made by `make` where the cached one is outdated.

        The list must not be changed.
        """
        name, mark, now = _name(client), await self._store.version(), self._clock()
        cached = self._lists.get(name)
        if cached is not None and cached.mark == mark and cached.made_at <= now < cached.until:
            return cached.runs
        runs = await make(client)
        # The expiry of a pending approval changes the list without a write to the store.
        ends = [one["expires_at"] for run in runs for one in run["pending"]]
        self._lists[name] = _List(mark, now, min([now + FRESH_MS, *ends]), runs)
        self._lists.move_to_end(name)
        if len(self._lists) > _MOST:
            self._lists.popitem(last=False)
        return runs


def _name(client: Client) -> tuple[str, str, bool]:
    """Return the cache key: the owner of the runs and the key that signs."""
    return client.principal, client.key, client.is_owner


class DeviceRuns:
    """The runs of the owner's other nodes, for the pages of the owner; empty for every other client."""

    def __init__(self, devices: OtherDevices | None) -> None:
        self._devices = devices
        self._stamp = -1
        self._rows: list[dict[str, Any]] = []

    async def listing(self, client: Client, own: Set[str]) -> list[dict[str, Any]]:
        """Return the runs that were copied here, but `own`, with the name of their `device`."""
        devices = self._devices
        if devices is None or not client.is_owner:
            return []
        stamp = await asyncio.to_thread(devices.stamp)
        if stamp != self._stamp:
            copied = await asyncio.to_thread(devices.copied)
            self._rows, self._stamp = [{**run, "device": name} for name, run in copied], stamp
        return [run for run in self._rows if run["run"] not in own]

    async def take(self, client: Client, saved: SavedRuns, run: str) -> None:
        """Take a run over from another node of the owner.

        Raises:
            HearthNetError: `not_found` for a client that is no page of the owner, and as
                `OtherDevices.bring_here`.
        """
        if self._devices is None or not client.is_owner:
            raise no_run(run)
        await self._devices.bring_here(saved, run)
