"""The waiting times of recoveries by helpers, as this node measures them where it is a witness.

    open, held --> waiting time by its own clock since its receipt --> no objection --> signed

The times of receipt are on the disk, so that a restart does not set them back. After a start, and after the
computer slept or its clock was set, the node waits some minutes more: it may not have heard of an objection.

See: docs/protocol/persons.md#helpers, docs/decisions/0208-recovery-by-helpers.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from hearthnet import HearthNetError, NodeContext
from hearthnet.core import TaskSet, least_ms
from hearthnet.service import EventChain
from hearthnet.trust import CommunityAuthor, Roster
from hearthnet_auth import persons, shares
from hearthnet_auth.private_files import write_private

_log = logging.getLogger(__name__)
SETTLING_MS: Final = 600_000
"""The last part of a waiting time, at most, in which the node has run without a break."""
_LOOK_SECONDS: Final = 30.0
_REFUSALS: Final = frozenset({"unauthorized", "not_found"})
"""Errors of a word that is not to be given, now or later."""
_GAP_MS: Final = 60_000
"""Time by which the clock may be ahead of what was measured before it counts as a break."""


class Clock(NamedTuple):
    """The time of day, and time that is measured; both in milliseconds."""

    now: Callable[[], int] = least_ms
    steady: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000


class RecoveryWatch:
    """The part of this node in recoveries, as a witness of others' and where its own is to be completed.

    `path` is the file of the times of receipt.
    """

    def __init__(self, chain: EventChain, node: NodeContext, path: Path, clock: Clock | None = None) -> None:
        self._chain = chain
        self._node = node
        self._path = path
        self._clock = clock or Clock()
        self._since = self._steady_before = self._clock.steady()
        self._now_before = self._clock.now()
        self._news = asyncio.Event()
        self._tasks = TaskSet()

    def start(self) -> None:
        """Begin to measure."""
        self._tasks.start(self._run(), "recoveries")

    def look(self) -> None:
        """Look at the roster again; called after each change of it."""
        self._news.set()

    async def close(self) -> None:
        """End the measuring; the times of receipt stay."""
        await self._tasks.close()

    async def _run(self) -> None:
        while True:
            self._news.clear()
            try:
                wait = await self.step()
            except (HearthNetError, OSError) as error:
                wait = _LOOK_SECONDS
                _log.warning("a recovery is not witnessed yet: %s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(wait, _LOOK_SECONDS)):
                    await self._news.wait()

    async def step(self) -> float:
        """Complete the recovery of this home, sign the due statements, return the seconds until more may be.

        Raises:
            HearthNetError: as `EventChain.append`.
            OSError: The times of receipt cannot be stored.
        """
        self._notice_break()
        waits = [_LOOK_SECONDS]
        roster = self._node.bus.peer.roster
        await self._complete(roster)
        received = await asyncio.to_thread(self._received, roster)
        for recovery, wait_ms in self._due(roster):
            rest = self._rest_ms(received[recovery], wait_ms)
            if rest > 0:
                waits.append(rest / 1000)
                continue
            await self._sign(recovery)
        return min(waits)

    async def _complete(self, roster: Roster) -> None:
        """Complete the recovery of this home; a damaged one keeps no word from others."""
        home = self._node.home
        try:
            if await asyncio.to_thread(shares.complete, home, roster):
                await persons.introduce(self._chain, home, self._node.identity)
        except (HearthNetError, ValueError) as error:
            _log.warning("the recovery of this home is not completed: %s", error)

    async def _sign(self, recovery: str) -> None:
        """Sign, by the roster of the moment at which the event is made: an objection may have arrived."""
        own = self._node.identity
        try:
            await self._chain.append(
                lambda held: (CommunityAuthor(held, own).witness(recovery, self._clock.now()),), _nothing
            )
        except HearthNetError as error:
            if error.code not in _REFUSALS:
                raise
            _log.info("no word for the recovery %s: %s", recovery, error)

    def _due(self, roster: Roster) -> Iterator[tuple[str, int]]:
        """Yield the open recoveries that this node may sign, and their waiting times in milliseconds."""
        own = self._node.identity.node_id
        for person in roster.persons:
            for one in person.recoveries:
                if own in one.witnesses and own not in one.witnessed and not one.objected:
                    yield one.recovery, one.wait_seconds * 1000

    def _rest_ms(self, received: int, wait_ms: int) -> int:
        by_clock = received + wait_ms - self._clock.now()
        without_break = self._since + min(wait_ms, SETTLING_MS) - self._clock.steady()
        return max(by_clock, without_break)

    def _notice_break(self) -> None:
        now, steady = self._clock.now(), self._clock.steady()
        if abs((now - self._now_before) - (steady - self._steady_before)) > _GAP_MS:
            self._since = steady
        self._now_before, self._steady_before = now, steady

    def _received(self, roster: Roster) -> dict[str, int]:
        """Return the time of receipt of each open recovery, and store those that are new."""
        stored: dict[str, int] = {}
        with contextlib.suppress(FileNotFoundError, ValueError, TypeError, AttributeError):
            stored = {str(name): int(at) for name, at in json.loads(self._path.read_bytes()).items()}
        open_ = {one.recovery for person in roster.persons for one in person.recoveries}
        found = {name: stored.get(name, self._clock.now()) for name in open_}
        if found != stored:
            write_private(self._path, json.dumps(found).encode("ascii"))
        return found


def _nothing() -> None:
    """Do nothing: no call asked for these events."""
