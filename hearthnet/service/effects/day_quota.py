"""Quotas: how many bytes each other node, and each guest of this one, may add to a log in a day.

    counter   one for each log, sender and day (UTC), in JetStream: shared by the processes of this node,
              and as after a restart as before
    blocks    a process takes 64 KiB at a time from the counter and spends them without writing, so that one
              call in thirty is counted on the disk

The calls of this node itself are not counted. What a refused call had asked for is not taken. Where another
node calls for others, each of these has half of the node's quota at most. What the keys of invites
add is on the account of who answers for them.

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

    `log` is a word for its subjects; `limit` is in bytes, 0 for any number. Calls that take back have the
    share `reserve` of it in addition.
    """

    def __init__(self, store: Store, own: str, log: str, limit: int, *, reserve: float = 1.0) -> None:
        self._store = store
        self._own = own
        self._log = log
        self._limit = limit
        self._reserve = int(reserve * limit)
        self._day = 0
        self._usage: dict[str, _Usage] = {}
        self._turn = asyncio.Lock()
        self._taking: set[asyncio.Task[None]] = set()

    async def charge(self, caller: str, principal: str, size: int, *, reserve: bool = False) -> None:
        """Count `size` bytes that a call of `caller` for `principal` is about to add.

        `caller` is its node or account (`Roster.account`). With `reserve` more is allowed: for calls that
        take back what earlier ones have added.

        Raises:
            HearthNetError: `rate_limited` with the time until the next day; `partition` or
                `capacity_exceeded` if the store cannot count.
        """
        charged: list[str] = []
        try:
            for account, share in self._accounts(caller, principal):
                async with self._turn:
                    await self._charge(account, size, (self._limit + reserve * self._reserve) // share)
                charged.append(account)
        except BaseException:
            self._give_back(charged, size)
            raise

    def refund(self, caller: str, principal: str, size: int) -> None:
        """Give back what a call was charged for and has not added."""
        self._give_back([account for account, _ in self._accounts(caller, principal)], size)

    def _give_back(self, accounts: list[str], size: int) -> None:
        for account in accounts:
            if known := self._usage.get(account):
                self._usage[account] = known._replace(left=known.left + size)

    def _accounts(self, caller: str, principal: str) -> list[tuple[str, int]]:
        """Return whose quotas a call counts against, each with its part of a quota: 2 is half.

        The node's own comes first: names of principals are free, and each begins a counter that is kept.
        """
        if not self._limit or caller == principal == self._own:
            return []
        if caller == self._own:
            return [(principal, 1)]
        whole = [(caller, 1)]
        return whole if principal == caller else [*whole, (f"{caller}//{principal}", 2)]

    async def _charge(self, sender: str, size: int, limit: int) -> None:
        now = now_ms()
        if now // _DAY_MS != self._day or len(self._usage) >= _MOST_SENDERS:
            self._day = now // _DAY_MS
            self._usage.clear()
        taken, left = self._usage.get(sender, _Usage())
        if size > left:
            wanted = -(-(size - left) // BLOCK_BYTES) * BLOCK_BYTES
            if taken + wanted <= limit:
                task = asyncio.create_task(self._take(sender, wanted, limit))
                self._taking.add(task)
                task.add_done_callback(self._taken)
                await asyncio.shield(task)
            taken, left = self._usage.get(sender, _Usage())
            if size > left:
                raise self._used_up(limit, now)
        self._usage[sender] = _Usage(taken, left - size)

    def _taken(self, task: asyncio.Task[None]) -> None:
        self._taking.discard(task)
        if not task.cancelled():
            task.exception()  # told by whoever still waits

    async def _take(self, sender: str, size: int, limit: int) -> None:
        """Take a block, and enter it although its call may have been given up meanwhile."""
        day, subject = self._day, f"ct.{ids.subject_token(sender)}.{self._log}.{self._day}"
        taken = await self._increment(subject, size)
        if taken > limit:
            taken, size = await self._increment(subject, -size), 0
        if day == self._day:
            known = self._usage.get(sender, _Usage())
            self._usage[sender] = _Usage(max(taken, known.taken), known.left + size)

    async def _increment(self, subject: str, by: int) -> int:
        try:
            return await jetstream_records.increment(self._store, subject, by)
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
