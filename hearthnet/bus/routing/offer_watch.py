"""Following the offers of a capability: appeared, changed, gone.

For a slow reader changes are merged: of each offer at most one change is pending, the sum of all since the
last read.

See: docs/protocol/discovery.md#announcements, docs/protocol/discovery.md#leases.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self

import msgspec

from hearthnet.bus.routing.discovery import Discovery
from hearthnet.bus.routing.offer_registry import Event, OfferView
from hearthnet.contracts.contract import Contract
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import steady_ms
from hearthnet.protocol import subjects
from hearthnet.protocol.offer import REPUBLISH_MS

if TYPE_CHECKING:
    from hearthnet.bus.session.session import Session

POLL_SECONDS: Final = 0.5
"""Maximum delay until the expiry of an offer is noticed."""


class OfferChange(msgspec.Struct, frozen=True):
    """A change of an offer: `appeared`, `changed` (load, places, trust, program) or `gone`."""

    event: Event
    view: OfferView


class PendingUpdates:
    """The unread changes, one per offer, in the order of their beginnings. Pure."""

    def __init__(self) -> None:
        self._changes: dict[object, OfferChange] = {}

    def __len__(self) -> int:
        return len(self._changes)

    def put(self, event: Event, view: OfferView) -> None:
        """Merge a change into the pending one of the same offer."""
        key = view.key
        before = self._changes.get(key)
        if before is not None and before.event == "appeared":
            if event == "gone":
                del self._changes[key]
                return
            event = "appeared"
        elif before is not None and before.event == "gone":
            event = "changed"
        self._changes[key] = OfferChange(event, view)

    def pop(self) -> OfferChange:
        """Remove and return the oldest change.

        Raises:
            KeyError: There is none.
        """
        key = next(iter(self._changes), None)
        return self._changes.pop(key)


class OfferWatch:
    """The offers of a capability: `async with bus.watch(...) as changes`, then `async for`.

    Begins with the present offers, each as `appeared`. Ends when the bus is left.
    """

    def __init__(self, peer: Session, discovery: Discovery, contract: Contract) -> None:
        self._peer = peer
        self._discovery = discovery
        self._contract = contract
        self._pending = PendingUpdates()
        self._woken = asyncio.Event()
        self._over = False
        self._leave: Callable[[], None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Begin to follow.

        Raises:
            HearthNetError: `partition` if the connection is closed.
        """
        registry, topic = self._discovery.registry, subjects.topic(self._contract.capability)
        await self._discovery.follow(self._contract)
        for view in registry.offers(topic, steady_ms()):
            self._on_event("appeared", view)
        self._leave = registry.watch(topic, self._on_event)
        self._task = asyncio.create_task(self._poll(), name=f"watch {topic}")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._end()
        if self._leave is not None:
            self._leave()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> OfferChange:
        while not self._pending:
            if self._over:
                raise StopAsyncIteration
            self._woken.clear()
            await self._woken.wait()
        return self._pending.pop()

    def _on_event(self, event: Event, view: OfferView) -> None:
        known = event == "gone" or self._peer.membership.is_member(view.node)
        if known and view.is_shown and view.capability.serves(self._contract.capability):
            self._pending.put(event, view)
            self._woken.set()

    def _end(self) -> None:
        self._over = True
        self._woken.set()

    async def _poll(self) -> None:
        """Repeat the find as often as offers are announced, the only way to `self` offers."""
        registry, closed = self._discovery.registry, asyncio.create_task(self._peer.link.closed())
        ask_at = 0
        try:
            while not closed.done():
                if steady_ms() >= ask_at:
                    ask_at = steady_ms() + REPUBLISH_MS
                    with contextlib.suppress(HearthNetError):  # the server is away; repeated later
                        await self._discovery.find(self._contract, lambda: False, lambda: True)
                await asyncio.wait({closed}, timeout=POLL_SECONDS)
                registry.drop_expired(steady_ms())
        finally:
            closed.cancel()
            self._end()
