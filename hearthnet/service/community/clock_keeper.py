"""The keeper of the home's time: compares the computer's clock with other homes', keeps the time on disk.

    every minute                                   the home's time is written to `clock.json`
    at the start, every ten minutes, and when      a find for `community.sync` is sent to every home: the time
    the link to another home came about            in the header of an answer is the answering home's own

No home refuses a find for its time, and answers to it are sealed and carry its id, so that they were made
after it. Only the `auth` service of a home has a keeper.

See: docs/protocol/frames.md#clock-rules, docs/decisions/0226.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import Any, Final

from hearthnet.bus.session.gossip_frames import LINKED
from hearthnet.bus.session.session import Session
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.tasks import TaskSet
from hearthnet.core.times import CLOCK, from_rfc3339, steady_ms
from hearthnet.protocol import frame as frames
from hearthnet.protocol import subjects
from hearthnet.protocol.frame import Frame
from hearthnet.service.community.clock_readings import NEAR_MS, Decision, Reading, decide

_log = logging.getLogger(__name__)
_WRITE_SECONDS: Final = 60.0
_COMPARE_SECONDS: Final = 600.0
_LISTEN_SECONDS: Final = 2.0
"""The time for answers. A server that holds one back makes its clock seem later by half of this at most."""
_DRIFT_MS: Final = 5_000
"""The least by which the home's time is moved: less does not matter, and each move is written and logged."""
_MOST_READINGS: Final = 1_024
_TOPIC: Final = "community.sync.v1"


class _Answers:
    """The clocks in the answers to one find, by node; the first answer of a node counts."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._began_ms = steady_ms()
        self.ahead: dict[str, int] = {}

    def on_frame(self, frame: Frame) -> bool:
        """Record the time of an answer against the middle of the time that it took."""
        header = frame.header
        if header.sender == self._own or header.kind != "offer" or len(self.ahead) >= _MOST_READINGS:
            return header.sender == self._own
        delay = steady_ms() - self._began_ms
        self.ahead.setdefault(header.sender, header.time - (CLOCK.system() - delay // 2))
        return True

    def on_no_responders(self, node: str) -> None:
        """Do nothing: without other homes nothing is learned."""

    def on_lost(self) -> None:
        """Do nothing: earlier answers count."""


class ClockKeeper:
    """The keeper of the time of `peer`'s home; without effect where this process follows no home's clock."""

    def __init__(self, peer: Session) -> None:
        self._peer = peer
        self._tasks = TaskSet()
        self._compare_now = asyncio.Event()
        self._writing = asyncio.Lock()
        self._confirmed: int | None = None
        """The lead of the home's time over the steady clock in the last comparison, if that confirmed it."""

    async def open(self) -> None:
        """Start to keep the time and to compare it."""
        if not CLOCK.follows:
            return
        self._peer.link.on_restored(self._linked)
        await self._peer.link.subscribe(subjects.event(self._peer.node_id, LINKED), self._on_linked)
        self._tasks.keep(self._write, "clock")
        self._tasks.keep(self._compare_often, "clocks")

    async def close(self) -> None:
        """Write the time once more, and end."""
        await self._tasks.close()
        if CLOCK.follows:
            await self._keep()

    async def compare(self, seconds: float = _LISTEN_SECONDS) -> Decision:
        """Ask every other home for its time, and go by what their answers within `seconds` show.

        Raises:
            HearthNetError: `partition` if the connection is broken.
        """
        peer = self._peer
        answers = _Answers(peer.node_id)
        header = peer.sender.header("find", ids.new_ulid(), capability=_TOPIC)
        peer.replies.expect(header.id, answers)
        try:
            data = frames.signed(header, b"", peer.identity)
            await peer.link.publish(subjects.find(peer.node_id, _TOPIC), data)
            await asyncio.sleep(seconds)
        finally:
            peer.replies.forget(header.id)
        answerable = peer.roster.answerable
        readings = [Reading(answerable(node), ahead) for node, ahead in answers.ahead.items()]
        decision = decide(readings, CLOCK.system(), self._home_ms(), CLOCK.record.confirmed_ms)
        await self._learn(decision)
        return decision

    def _home_ms(self) -> int:
        """Return the home's time, or that of the newest event that this node has signed, if it is later.

        A clock before that is wrong, whatever is on the disk; others could date their events as they like.
        """
        own = self._peer.node_id
        events = (one for one in self._peer.roster.events if one.author == own)
        return max(CLOCK.now_ms(), max((from_rfc3339(one.wall_clock) for one in events), default=0))

    async def _learn(self, decision: Decision) -> None:
        ahead = decision.ahead_ms
        if ahead is not None:
            moved = CLOCK.system() + ahead - CLOCK.now_ms()
            if abs(moved) > NEAR_MS:
                _log.warning("the home's time moves by %d s, to that of other homes", moved // 1000)
            if abs(moved) > _DRIFT_MS or (not ahead and CLOCK.record.ahead_ms):
                CLOCK.learn(ahead)
        self._confirmed = CLOCK.now_ms() - steady_ms() if decision.is_confirmed else None
        await self._keep(
            homes=decision.homes,
            others_ms=decision.others_ms,
            compared_ms=CLOCK.system(),
            is_open=ahead is None and abs(decision.others_ms) > NEAR_MS,
        )

    async def _keep(self, **news: Any) -> None:
        """Write the record with `news`; a full disk has no effect but on what a later start knows."""
        async with self._writing:
            now = CLOCK.now_ms()
            # A clock that has jumped ahead since is not confirmed: that time could never be left again.
            if self._confirmed is not None and abs(now - steady_ms() - self._confirmed) <= NEAR_MS:
                news["confirmed_ms"] = now
            try:
                await asyncio.to_thread(CLOCK.keep, CLOCK.record._replace(**news))
            except OSError as error:
                _log.warning("the home's time is not on the disk: %s", error.strerror or error)

    async def _write(self) -> None:
        while True:
            await self._keep()
            await asyncio.sleep(_WRITE_SECONDS)

    async def _compare_often(self) -> None:
        while True:
            self._compare_now.clear()
            with contextlib.suppress(HearthNetError):
                await self.compare()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_COMPARE_SECONDS * random.uniform(0.8, 1.2)):
                    await self._compare_now.wait()

    async def _linked(self) -> None:
        self._compare_now.set()

    def _on_linked(self, subject: str, data: bytes, absent: bool) -> None:
        """Compare at once; the server lets this node alone publish here, so the frame is not opened."""
        self._compare_now.set()
