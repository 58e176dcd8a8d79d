"""The line of calls that wait for a place which another call of the same process holds."""

from __future__ import annotations

import asyncio
from bisect import insort
from operator import itemgetter


class PlaceLine:
    """Waiting calls of one capability, in the order of their turns.

    See: docs/protocol/discovery.md#choosing
    """

    __slots__ = ("_waiting", "_woken")

    def __init__(self) -> None:
        self._waiting: list[tuple[int, asyncio.Event]] = []
        self._woken = 0

    def __len__(self) -> int:
        return len(self._waiting) + self._woken

    @property
    def is_promised(self) -> bool:
        """Whether a free place belongs to a call that was woken and has not gone on yet."""
        return bool(self._woken)

    def wake_first(self) -> None:
        """Wake the first call, for which a place is free now."""
        if self._waiting:
            self._waiting.pop(0)[1].set()
            self._woken += 1

    async def wait(self, turn: int, until: float) -> bool:
        """Wait until this call is woken, at most to the loop time `until`; return whether it was woken."""
        free = asyncio.Event()
        waiter = (turn, free)
        insort(self._waiting, waiter, key=itemgetter(0))
        try:
            async with asyncio.timeout_at(until):
                await free.wait()
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if free.is_set():
                self.wake_first()
            raise
        finally:
            if free.is_set():
                self._woken -= 1
            else:
                self._waiting.remove(waiter)
        return free.is_set()
