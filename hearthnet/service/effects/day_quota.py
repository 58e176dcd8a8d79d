"""Quotas: how many bytes each other node, and each guest of this one, may add to a log in a day.

    counter   one for each log, sender and day (UTC), in JetStream: shared by the processes of this node,
              and as after a restart as before
    blocks    a process takes 64 KiB at a time from the counter and spends them without writing, so that one
              call in thirty is counted on the disk

The calls of this node itself are not counted. What a refused call had asked for is not taken.

See: docs/protocol/effects.md#quotas, docs/decisions/0195.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from hearthnet.bus.store import Store
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.core.times import now_ms
from hearthnet.service.effects import jetstream_records
from hearthnet.service.effects.jetstream_records import StoreTimeout

RULE: Final = "bytes_a_day"
BLOCK_BYTES: Final = 64 * 1024
_DAY_MS: Final = 24 * 60 * 60 * 1000
_MB: Final = 1_000_000
_MOST_SENDERS: Final = 4_096
"""Senders in memory; beyond it all are forgotten, and what they had left of their blocks is lost."""


class _Usage(NamedTuple):
    """The bytes that all processes have taken, as known here, and what this process has left of its own."""

    taken: int = 0
    left: int = 0


class DayQuota:
    """The quota of one log, at the node `own` to which `store` belongs.

    `log` is a word for its subjects; `limit` is in bytes, 0 for any number.
    """

    def __init__(self, store: Store, own: str, log: str, limit: int) -> None:
        self._store = store
        self._own = own
        self._log = log
        self._limit = limit
        self._day = 0
        self._usage: dict[str, _Usage] = {}
        self._turn = asyncio.Lock()

    async def charge(self, caller: str, principal: str, size: int, *, reserve: bool = False) -> None:
        """Count `size` bytes that a call of `caller` for `principal` is about to add.

        With `reserve` as much again is allowed: for calls that take back what earlier ones have added.

        Raises:
            HearthNetError: `rate_limited` with the time until the next day; `partition` or
                `capacity_exceeded` if the store cannot count.
        """
        if sender := self._sender(caller, principal):
            async with self._turn:
                await self._charge(sender, size, 2 * self._limit if reserve else self._limit)

    def refund(self, caller: str, principal: str, size: int) -> None:
        """Give back what a call was charged for and has not added."""
        if known := self._usage.get(sender := self._sender(caller, principal)):
            self._usage[sender] = known._replace(left=known.left + size)

    def _sender(self, caller: str, principal: str) -> str:
        """Return whose quota a call counts against, empty for none."""
        if not self._limit:
            return ""
        if caller != self._own:
            return caller
        return "" if principal == caller else principal

    async def _charge(self, sender: str, size: int, limit: int) -> None:
        now = now_ms()
        if now // _DAY_MS != self._day or len(self._usage) >= _MOST_SENDERS:
            self._day = now // _DAY_MS
            self._usage.clear()
        taken, left = self._usage.get(sender, _Usage())
        if size > left:
            wanted = -(-(size - left) // BLOCK_BYTES) * BLOCK_BYTES
            if taken + wanted <= limit:
                taken = await self._take(sender, wanted)
                left += wanted if taken <= limit else 0
            self._usage[sender] = _Usage(taken, left)
            if size > left:
                raise self._used_up(limit, now)
        self._usage[sender] = _Usage(taken, left - size)

    async def _take(self, sender: str, size: int) -> int:
        subject = f"ct.{ids.subject_token(sender)}.{self._log}.{self._day}"
        try:
            return await jetstream_records.increment(self._store, subject, size)
        except StoreTimeout as error:
            raise Unavailable(
                "the store does not answer; try again in a moment", rule="store_silent"
            ) from error

    def _used_up(self, limit: int, now: int) -> HearthNetError:
        return HearthNetError(
            "rate_limited",
            f"your calls have added {limit // _MB} MB to the {self._log} log of this home today, the most "
            "of a member in a day; it goes on at midnight UTC",
            rule=RULE,
            details={"limit": limit},
            retry_after_ms=_DAY_MS - now % _DAY_MS,
        )
