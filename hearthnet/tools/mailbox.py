"""What happens to one run, in order, for the one task that drives it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from hearthnet.tools.events import Event, Tick
from hearthnet.tools.ports import Clock

MOST_WAITING: Final = 32
"""More events than these do not wait; who can wait in their place does."""


class Mailbox:
    """Events that wait for their turn, and the time that passes meanwhile."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._events: deque[Event] = deque()
        self._woken: asyncio.Future[None] | None = None
        self._bell: asyncio.TimerHandle | None = None
        self._bell_at = 0
        self._room = asyncio.Event()

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: Event) -> None:
        """Adds `event`, in whatever task of the same event loop."""
        self._events.append(event)
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def put_in_turn(self, event: Event) -> None:
        """Adds `event` once fewer than `MOST_WAITING` are here."""
        while len(self._events) >= MOST_WAITING:
            self._room.clear()
            await self._room.wait()
        self.put(event)

    def take(self) -> Event:
        """The event that came first, of those that are here."""
        self._room.set()
        return self._events.popleft()

    async def next(self, due: int | None) -> Event:
        """The event that came first, once there is one; a `Tick` at `due` (clock's milliseconds), or before.
        For one task at a time.
        """
        now = self._clock.now_ms()
        if due is not None and due <= now:
            return Tick(now=now)
        if not self._events:
            if due is not None:
                self._ring_at(due, now)
            self._woken = asyncio.get_running_loop().create_future()
            try:
                await self._woken
            finally:
                self._woken = None
        return self.take()

    def close(self) -> None:
        """Nobody waits for the time any more."""
        if self._bell is not None:
            self._bell.cancel()
            self._bell = None

    def _ring_at(self, due: int, now: int) -> None:
        """One timer serves as long as none is due before it: nearly everything ends long before its time."""
        if self._bell is not None:
            if self._bell_at <= due:
                return
            self._bell.cancel()
        self._bell_at = due
        self._bell = asyncio.get_running_loop().call_later((due - now) / 1000, self._ring)

    def _ring(self) -> None:
        self._bell = None
        self.put(Tick(now=self._clock.now_ms()))
