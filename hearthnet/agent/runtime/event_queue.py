"""The events of one run, in order, for the one task that drives it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from hearthnet.agent.loop.events import Event, Tick
from hearthnet.agent.runtime.ports import Clock

MOST_WAITING: Final = 32
"""The most events that wait; a sender beyond them waits itself."""


class EventQueue:
    """A queue of events, with ticks for the time that passes."""

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
        """Add `event`, from any task of the same event loop."""
        self._events.append(event)
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def put_bounded(self, event: Event) -> None:
        """Add `event` once fewer than `MOST_WAITING` are waiting."""
        while len(self._events) >= MOST_WAITING:
            self._room.clear()
            await self._room.wait()
        self.put(event)

    def pop(self) -> Event:
        """Remove and return the oldest event."""
        self._room.set()
        return self._events.popleft()

    async def next(self, due: int | None) -> Event:
        """Wait for the oldest event, or for a `Tick` at `due` (in the clock's milliseconds).

        Only one task may wait at a time.
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
        return self.pop()

    def close(self) -> None:
        """Cancel the timer."""
        if self._bell is not None:
            self._bell.cancel()
            self._bell = None

    def _ring_at(self, due: int, now: int) -> None:
        """Set the timer unless an earlier one is set: most events come long before it."""
        if self._bell is not None:
            if self._bell_at <= due:
                return
            self._bell.cancel()
        self._bell_at = due
        self._bell = asyncio.get_running_loop().call_later((due - now) / 1000, self._ring)

    def _ring(self) -> None:
        self._bell = None
        self.put(Tick(now=self._clock.now_ms()))
