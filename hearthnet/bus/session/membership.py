"""The members of the community as this process knows them: verified events from the bus.

The roster is a grow-only set of signed events, so neither their order nor repetitions matter. Known events
are skipped before any signature is checked. Missed events are fetched when nodes compare the extents of their
records (docs/decisions/0043).

Merging runs in another thread, a slice at a time, and rests in between; removals wait for neither
(docs/decisions/0198):

    removal (revocation, demotion, departure) --> its lane --> before the next slice, without a rest
    any other event of another node ----------> waiting --> a slice after each rest
    removal by another without its place --> its target is refused meanwhile
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from hearthnet.bus.session.event_intake import EventIntake
from hearthnet.bus.session.gossip_frames import (
    BATCH,
    DIGESTS,
    HEADS,
    LOG,
    RELAY,
    REVOKED,
    GossipReader,
    SetDigest,
    SetDigests,
)
from hearthnet.bus.session.removal_lane import RemovalLane, derive
from hearthnet.core.canonical_json import digest, read_json
from hearthnet.core.errors import HearthNetError
from hearthnet.core.rationed_log import RationedLog
from hearthnet.core.tasks import TaskSet
from hearthnet.core.times import least_ms, now_ms, steady_ms
from hearthnet.nats.client import NatsClient
from hearthnet.protocol import subjects
from hearthnet.protocol.frame import FrameError
from hearthnet.trust.authorization import revocation
from hearthnet.trust.authorization.authority import CallerStatus
from hearthnet.trust.authorization.revocation import Revocations, TokenRevocation
from hearthnet.trust.community import events
from hearthnet.trust.community.events import CommunityEvent
from hearthnet.trust.community.history import History
from hearthnet.trust.community.removals import removal_target
from hearthnet.trust.community.roster import RANK, Roster

_log = logging.getLogger(__name__)
Result = TypeVar("Result")
_HEADS_MS: Final = 30_000
_MOST_WAITING: Final = 4_000
_MOST_EARLY: Final = 200
"""Maximum of events kept for a moment because events that they build on are on their way."""
_SLICE: Final = 200
"""Events merged before removals are looked for again: some 50 ms of signatures."""
_REST: Final = 9
"""Pause after a slice, as a multiple of its processor time: merging takes at most a tenth of a core."""


class Membership:
    """The roster and the revoked tokens of one process of `node`, with callbacks for changes."""

    def __init__(self, node: str, roster: Roster) -> None:
        self._node = node
        self._roster = roster
        self._shown = roster
        self._statuses: dict[str, CallerStatus] = {}
        self._statuses_of = roster
        self.revocations = Revocations()
        self._intake = EventIntake(node, lambda: self._shown)
        self.reader = GossipReader(
            node,
            roster.community_id,
            lambda sender: self._shown.level(sender),
            lambda sender: self._roster.line(sender),
        )
        self._lane = RemovalLane(node, lambda: self._shown)
        self._waiting: dict[str, CommunityEvent] = {}
        self._sources: dict[str, str] = {}
        self._early: tuple[CommunityEvent, ...] = ()
        self._merging = asyncio.Lock()
        self._tasks = TaskSet()
        self._work: asyncio.Task[None] | None = None
        self._rest_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._changed: list[Callable[[], None]] = []
        self._local_heads: list[Callable[[SetDigests], None]] = []
        self._heads: SetDigests | None = None
        self._heads_until = 0
        self._drop_log = RationedLog(_log, logging.INFO)
        self.dropped = 0

    @property
    def roster(self) -> Roster:
        """The present roster; each change makes another object.

        A member whose revocation is valid and waits for events that it builds on is not in it.
        """
        return self._shown

    @property
    def passed_over(self) -> int:
        """The number of valid events for which their authors had no room left."""
        return self._intake.passed_over

    @property
    def waiting_removals(self) -> tuple[CommunityEvent, ...]:
        """The valid removals that wait for events that they build on."""
        return tuple(self._lane.early.values())

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each change of the roster or the revoked tokens."""
        self._changed.append(callback)

    def on_local_heads(self, callback: Callable[[SetDigests], None]) -> None:
        """Call `callback` with the heads that this node's `auth` service publishes."""
        self._local_heads.append(callback)

    def is_member(self, node: str) -> bool:
        """Return whether `node` belongs to the community now, at any level."""
        return RANK[self._shown.level(node)] >= RANK["member"]

    def status(self, node: str) -> CallerStatus:
        """Return the present status of `node`.

        Cached for members until the roster changes; an invite may expire at any moment.
        """
        roster = self._shown
        if roster is not self._statuses_of:
            self._statuses_of = roster
            self._statuses.clear()
        known = self._statuses.get(node)
        if known is None:
            known = CallerStatus(node, roster.level(node, now_ms()), roster.is_revoked(node))
            if roster.member(node) is not None:
                self._statuses[node] = known
        return known

    def account(self, node: str) -> str:
        """Return the account to which frames and calls of `node` are counted now (`Roster.account`)."""
        return self._shown.account(node)

    def heads(self) -> SetDigests:
        """Return the extent of this process's record, without expired revocations."""
        now = steady_ms()
        if self._heads is None or now >= self._heads_until:
            self._heads_until = now + _HEADS_MS
            current = self.revocations.current(least_ms())
            known = sorted(f"{one.issuer} {one.token_id}" for one in current)
            self._heads = SetDigests(
                events=SetDigest(self._roster.version, digest(self._roster.heads())),
                revocations=SetDigest(len(known), digest(known)),
            )
        return self._heads

    async def follow(self, link: NatsClient) -> None:
        """Subscribe to the events of the community; `link` is that of a member's process."""
        for event_type in (LOG, REVOKED):
            await link.subscribe(subjects.events_of(event_type), self.on_message)
        for event_type in (RELAY, HEADS):
            await link.subscribe(subjects.event(self._node, event_type), self.on_message)

    async def close(self) -> None:
        """Stop merging."""
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.close()

    def on_message(self, subject: str, data: bytes, absent: bool) -> None:
        """Process one event frame; a faulty one is dropped and counted."""
        if not self.reader.budget.admits(subject, len(data)):
            return
        try:
            self._read(subject, data)
        except (FrameError, HearthNetError) as error:
            self._drop(error)

    async def add(
        self, events: Iterable[CommunityEvent], revocations: Iterable[TokenRevocation] = ()
    ) -> bool:
        """Add documents that this node made or stored; return whether any of them was new.

        Invalid events are skipped; an event that builds on missing ones waits for them.
        """
        return await self._add(events, revocations, self._node, [])

    async def add_fetched(
        self, events: Sequence[CommunityEvent], revocations: Iterable[TokenRevocation], source: str
    ) -> tuple[bool, set[str]]:
        """Add documents of the node `source` as `add`, as far as there is room for their authors.

        Return whether any was new, and the authors for whose events there was no room.
        """
        fit = [one for one in events if self._intake.is_fit(one)]
        refused = [one for one in events if not self._intake.is_fit(one)]
        new = await self._add(fit, revocations, source, refused)
        return new, {one.author for one in refused}

    async def _add(
        self,
        events: Iterable[CommunityEvent],
        revocations: Iterable[TokenRevocation],
        source: str,
        refused: list[CommunityEvent],
    ) -> bool:
        offered = [event for event in events if not self._lane.takes(event, self._roster.history, source)]
        before = self._roster
        await self._merge(offered, source, refused)
        added = await self._add_revocations(
            [one for one in revocations if self.revocations.lacks(one)], source
        )
        return self._roster is not before or added

    async def _add_revocations(self, offered: Sequence[TokenRevocation], source: str) -> bool:
        """Verify unknown revocations outside of the event loop, in slices, and return whether any was added.

        `source` is charged for each that is not valid; what it sends beyond its budget is left out.
        """
        added = 0
        for start in range(0, len(offered), _SLICE):
            part = offered[start : start + _SLICE]
            valid, _ = await _in_thread(_valid_revocations, part, self._shown)
            added += sum(self._revoke(one, self.revocations.keep) for one in valid)
            if len(valid) < len(part):
                try:
                    self.reader.spend(source, len(part) - len(valid))
                except FrameError as error:
                    self._drop(error)
                    break
        if added:
            self._notify()
        return added > 0

    def _read(self, subject: str, data: bytes) -> None:
        frame = self.reader.open(subject, data)
        sender = frame.header.sender
        if frame.header.event == HEADS:
            heads = read_json(frame.body, DIGESTS)
            for callback in self._local_heads:
                callback(heads)
            return
        batch = read_json(frame.body, BATCH)
        self.reader.spend(sender, len(batch.events) + len(batch.revocations))
        received = [events.decode(bytes(raw)) for raw in batch.events]
        self.reader.spend(sender, sum(map(events.co_signatures, received)))
        # A frame has as many as its sender has units for, so they are verified at once.
        add = functools.partial(self.revocations.add, roster=self._shown)
        revoked = [self._revoke(revocation.decode(bytes(raw)), add) for raw in batch.revocations]
        if any(revoked):
            self._notify()
        for event in received:
            try:
                self._queue(event, sender)
            except (FrameError, HearthNetError) as error:  # the frame's other events have other authors
                self._drop(error)
        self._merge_soon()

    def _drop(self, error: Exception) -> None:
        self.dropped += 1
        self._drop_log.write("dropped an event: %s", error)

    def _queue(self, event: CommunityEvent, sender: str) -> None:
        """Add an unknown event to those to be merged."""
        if not self._intake.is_fit(event):
            raise FrameError("it is malformed, or too large for one of an unknown kind")
        history = self._roster.history
        if event.hash in self._waiting or self._lane.takes(event, history, sender):
            return
        if history.get(event.hash) is not None:
            return
        if not self._intake.has_room(event, sender):
            raise FrameError("its author writes more than is kept")
        if len(self._waiting) >= _MOST_WAITING:
            raise FrameError("too many events at once; they come again")
        self._waiting[event.hash] = event
        self._sources[event.hash] = sender

    def _merge_soon(self) -> None:
        """Merge removals at once, and others after the pause that follows the last slice."""
        if self._work is not None or not (self._lane.queued or self._waiting):
            return
        loop = asyncio.get_running_loop()
        if self._lane.queued or loop.time() >= self._rest_until:
            self._begin()
        elif self._timer is None:
            self._timer = loop.call_at(self._rest_until, self._begin)

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._work is None:
            self._work = self._tasks.start(self._merge_waiting(), "merge")

    async def _merge_waiting(self) -> None:
        """Merge the lane, and one slice of what waits if the rest is over."""
        try:
            rested = asyncio.get_running_loop().time() >= self._rest_until
            hashes = list(self._waiting)[:_SLICE] if rested else []
            batch = [self._waiting.pop(hash_) for hash_ in hashes]
            sources = {hash_: self._sources.pop(hash_) for hash_ in hashes}
            took = await self._merge(batch, sources, [])
            if rested:
                self._rest_until = asyncio.get_running_loop().time() + _REST * took
        finally:
            self._work = None
        self._merge_soon()

    async def _merge(
        self,
        offered: Sequence[CommunityEvent],
        source: str | dict[str, str],
        refused: list[CommunityEvent],
    ) -> float:
        """Merge `offered`, and the lane before each slice of it; return the processor time in seconds.

        Valid events for whose authors there is no room are added to `refused`.
        """

        def admits(event: CommunityEvent) -> bool:
            by = source if isinstance(source, str) else source.get(event.hash, "")
            # A removal whose place is not there yet needs the events of its target: its author has them.
            if self._intake.take(event, (by, *awaited.get(event.author, ())), lookup):
                return True
            refused.append(event)
            return False

        def lookup(hash_: str) -> CommunityEvent | None:
            # An event in its place builds on proved ones, so those of the batch that it names are valid.
            return history.get(hash_) or offered_now.get(hash_)

        took, early = 0.0, list[CommunityEvent]()
        async with self._merging:
            # What an event builds on has a lower lamport.
            ordered = sorted([*self._early, *offered], key=lambda one: one.lamport)
            history, start = self._roster.history, 0
            while self._lane.queued or start < len(ordered):
                queued = self._lane.take_queued()
                lane, awaited = {**self._lane.early, **queued}, dict[str, list[str]]()
                for one in self._lane.early.values():
                    awaited.setdefault(removal_target(one), []).append(one.author)
                batch, start = [*lane.values(), *ordered[start : start + _SLICE]], start + _SLICE
                offered_now = {one.hash: one for one in batch}
                (history, waiting), seconds = await _in_thread(history.extended, batch, admits)
                early += (one for one in waiting if one.hash not in lane)
                if queued or start >= len(ordered):
                    unplaced = [one for one in waiting if one.hash in lane]
                    settling, others = await self._settle(history, unplaced)
                    seconds += settling
                    early += others
                    known = {one.hash for one in others}
                    valid = [one for one in queued if one in known or history.get(one) is not None]
                    self._lane.charge(queued.values(), valid, seconds)
                took += seconds
            self._early = tuple({one.hash: one for one in early}.values())[-_MOST_EARLY:]
        return took

    async def _settle(
        self, history: History, removals: Sequence[CommunityEvent]
    ) -> tuple[float, list[CommunityEvent]]:
        """Set the roster to what `history` comes to, without those whom `removals` revoke.

        The places of these are not there yet. Return the processor time in seconds, and the valid ones of
        `removals` that wait in turn.
        """
        known, before = self._lane.early, self._shown
        (proven, shown, urgent, others), took = await _in_thread(
            derive, self._roster, before, history, removals, known
        )
        self._roster, self._shown = proven, shown
        self._lane.early = {one.hash: one for one in urgent}
        if shown is not before or self._lane.early.keys() != known.keys():
            self._notify()
        return took, others

    def _revoke(self, document: TokenRevocation, add: Callable[[TokenRevocation], bool]) -> bool:
        """Call `add` and return whether the revocation was new; an invalid one is dropped."""
        try:
            return add(document)
        except HearthNetError as error:
            self.dropped += 1
            _log.info("dropped a revocation: %s", error)
            return False

    def _notify(self) -> None:
        self._heads = None
        for callback in self._changed:
            callback()


async def _in_thread(work: Callable[..., Result], *arguments: Any) -> tuple[Result, float]:
    """Return the result of `work` and its processor time in seconds; it does not hold the event loop."""

    def timed() -> tuple[Result, float]:
        began = time.thread_time()
        result = work(*arguments)
        return result, time.thread_time() - began

    return await asyncio.to_thread(timed)


def _valid_revocations(offered: Sequence[TokenRevocation], roster: Roster) -> list[TokenRevocation]:
    found = []
    for one in offered:
        with contextlib.suppress(HearthNetError):
            revocation.check(one, roster)
            found.append(one)
    return found
