"""Regular work on the market of this home: overdue posts end, deleted words leave the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from hearthnet import Bus, HearthNetError, NodeContext
from hearthnet.bus import Outbox
from hearthnet.core import least_ms, now_ms
from hearthnet.service import EventLog
from hearthnet_market.decisions import guarded
from hearthnet_market.read_model import View
from hearthnet_market.schemas import sweep_id

_SWEPT_AT_ONCE: Final = 100
ERASED_AT_ONCE: Final = 500


class Upkeep:
    """Ends overdue posts and erases deleted events; each step may be repeated after an interruption."""

    def __init__(self, bus: Bus, events: EventLog, view: View, look: Callable[..., Awaitable[Any]]) -> None:
        """`look` runs a query of the view in a thread."""
        self._bus = bus
        self._events = events
        self._view = view
        self._look = look

    async def sweep(
        self, seconds: float, update_note: Callable[[], None], catch_up: Callable[[], Awaitable[None]]
    ) -> None:
        """End overdue posts every `seconds`, and finish interrupted erasures; never returns."""
        await guarded(self.erase(), "erasing what was deleted")
        while True:
            await asyncio.sleep(seconds)
            update_note()
            await guarded(self.end_overdue(least_ms(), catch_up), "sweeping")
            await guarded(self.erase(), "erasing what was deleted")

    async def end_overdue(self, now_ms: int, catch_up: Callable[[], Awaitable[None]]) -> None:
        """End posts overdue at `now_ms` by ordinary calls of this node.

        `catch_up` brings the view up to the log.

        Raises:
            HearthNetError: A call was refused.
        """
        while overdue := await self._look(self._view.overdue, now_ms, _SWEPT_AT_ONCE):
            for event_id in overdue:
                ended = {"client_id": sweep_id(event_id), "event_id": event_id, "reason": "stale"}
                try:
                    await self._bus.call("market.expire@1.0", {"params": {}, "input": ended})
                except HearthNetError as error:
                    if error.code != "not_found":  # another process ended it first
                        raise
            await catch_up()

    async def erase(self) -> None:
        """Have the server overwrite events of deleted posts, and the view drop their words.

        Raises:
            HearthNetError: `partition` if the log does not answer.
        """
        while places := await asyncio.to_thread(self._view.erasing, ERASED_AT_ONCE):
            for place in places:
                await self._events.erase(place)
            await asyncio.to_thread(self._view.record_erased, places)


async def deliver(node: NodeContext, seconds: float) -> None:
    """Send the calls that were stored while this node was away (docs/decisions/0125); never returns."""
    outbox = Outbox(node.home, node.bus.peer.identity)
    while True:
        await asyncio.sleep(seconds)
        await guarded(outbox.deliver(node.bus.call, now_ms), "sending what waits")
