"""A cache of the lists of runs, for repeated requests while nothing has changed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from hearthnet.agent.persistence.run_store import RunStore
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
        self._kept: OrderedDict[tuple[str, str, bool], _List] = OrderedDict()

    async def get(
        self, client: Client, make: Callable[[Client], Awaitable[list[dict[str, Any]]]]
    ) -> list[dict[str, Any]]:
        """Return the client's list, made by `make` where the cached one is outdated.

        The list must not be changed.
        """
        name, mark, now = _name(client), await self._store.version(), self._clock()
        kept = self._kept.get(name)
        if kept is not None and kept.mark == mark and kept.made_at <= now < kept.until:
            return kept.runs
        runs = await make(client)
        # The expiry of a pending approval changes the list without a write to the store.
        ends = [one["expires_at"] for run in runs for one in run["pending"]]
        self._kept[name] = _List(mark, now, min([now + FRESH_MS, *ends]), runs)
        self._kept.move_to_end(name)
        if len(self._kept) > _MOST:
            self._kept.popitem(last=False)
        return runs


def _name(client: Client) -> tuple[str, str, bool]:
    """Return the cache key: the owner of the runs and the key that signs."""
    return client.principal, client.key, client.is_owner
