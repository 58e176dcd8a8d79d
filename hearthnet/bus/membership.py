"""Who belongs to the community, as this process knows it now: followed on the bus, piece by piece proved.

The roster is a set of signed events that only grows, so it does not matter in which order they come, nor
whether they come twice. What is known already is passed over before any signature is checked. What was missed
is made up for when nodes compare how much they know (docs/decisions/0043).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from hearthnet.bus import event_frames
from hearthnet.bus.allowance import Allowance
from hearthnet.bus.event_frames import HEADS, LOG, RELAY, REVOKED, Extent, Heads, Reader
from hearthnet.bus.link import Link
from hearthnet.canonical import digest
from hearthnet.errors import HearthNetError
from hearthnet.times import now_ms, steady_ms
from hearthnet.trust import community, revocation
from hearthnet.trust import roster as rosters
from hearthnet.trust.community import CommunityEvent, Joined
from hearthnet.trust.revocation import Revocations, TokenRevocation
from hearthnet.trust.roster import RANK, Roster
from hearthnet.wire import subjects
from hearthnet.wire.frame import Frame, FrameError

_log = logging.getLogger(__name__)
_HEADS_MS: Final = 30_000
_MOST_WAITING: Final = 4_000
_MOST_EARLY: Final = 200
"""Events that are kept for a moment because what they build on is on its way."""
_REST: Final = 9
"""Rests so many times as long as the last merge took: never more than a tenth of a core goes into merging."""
_WRITTEN: Final = 2_000
_WRITTEN_PER_SECOND: Final = 0.2
"""Events that are taken in of one member, and as many of all strangers who ask to join under its invites, at
once and in the long run: everybody keeps them for good.
"""


class Membership:
    """The roster and the revoked tokens of one process of `node`, and who wants to know when they change."""

    def __init__(self, node: str, roster: Roster) -> None:
        self._node = node
        self._roster = roster
        self.revocations = Revocations()
        self._reader = Reader(node, roster.community_id, lambda sender: self._roster.level(sender))
        self._written = Allowance(_WRITTEN, _WRITTEN_PER_SECOND)
        self._vouching: dict[str, str] = {}
        self._waiting: dict[str, CommunityEvent] = {}
        self._early: tuple[CommunityEvent, ...] = ()
        self._rest_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._changed: list[Callable[[], None]] = []
        self._own_heads: list[Callable[[Heads], None]] = []
        self._heads: Heads | None = None
        self._heads_until = 0
        self.dropped = 0

    @property
    def roster(self) -> Roster:
        """The roster as it is known now: each change makes another one."""
        return self._roster

    def on_change(self, callback: Callable[[], None]) -> None:
        """Calls back whenever the roster or the revoked tokens are others than before."""
        self._changed.append(callback)

    def on_own_heads(self, callback: Callable[[Heads], None]) -> None:
        """Calls back with how much the own node's `auth` service knows, whenever it tells."""
        self._own_heads.append(callback)

    def is_member(self, node: str) -> bool:
        """Whether `node` belongs to the community now, at any level."""
        return RANK[self._roster.level(node)] >= RANK["member"]

    def heads(self) -> Heads:
        """How much this process knows, and need not forget yet."""
        now = steady_ms()
        if self._heads is None or now >= self._heads_until:
            self._heads_until = now + _HEADS_MS
            current = self.revocations.current(now_ms())
            known = sorted(f"{one.issuer} {one.token_id}" for one in current)
            self._heads = Heads(
                events=Extent(self._roster.version, digest(self._roster.heads())),
                revocations=Extent(len(known), digest(known)),
            )
        return self._heads

    async def follow(self, link: Link) -> None:
        """Listens from now on to what happens in the community; `link` is a member's own."""
        for event_type in (LOG, REVOKED):
            await link.subscribe(subjects.events_of(event_type), self.on_message)
        for event_type in (RELAY, HEADS):
            await link.subscribe(subjects.event(self._node, event_type), self.on_message)

    def on_message(self, subject: str, data: bytes, absent: bool) -> None:
        """One message that tells everybody something. What is wrong with it is dropped and counted."""
        try:
            self._hear(subject, data)
        except (FrameError, HearthNetError) as error:
            self.dropped += 1
            _log.info("dropped an event: %s", error)

    def learn(self, events: Iterable[CommunityEvent], revocations: Iterable[TokenRevocation] = ()) -> bool:
        """Takes in, at once, what the own node made or kept; whether anything of it was new.

        What does not hold is passed over; an event that builds on others which are not there waits for them.
        """
        before = self._roster
        offered = [*self._early, *self._waiting.values(), *events]
        self._waiting.clear()
        self._roster, early = rosters.merge_some(before, offered)
        self._early = tuple({one.hash: one for one in early}.values())[-_MOST_EARLY:]
        added = [self._revoke(one) for one in revocations]
        if self._roster is before and not any(added):
            return False
        self._tell()
        return True

    def fetched(self, events: Iterable[CommunityEvent], revocations: Iterable[TokenRevocation]) -> bool:
        """As `learn`, for what another node gave: of one author only so much is taken in."""
        before, now = self._roster, steady_ms()
        new = self.learn([one for one in events if self._left(one, now) >= 1], revocations)
        self._account(before)
        return new

    def beyond(self, events: Iterable[CommunityEvent]) -> dict[str, list[str]]:
        """The last of each author's `events` that `fetched` does not take in yet, since it writes too much:
        as heads, with which others are asked for what the rest wrote.
        """
        now = steady_ms()
        left_out = [one for one in events if self._left(one, now) < 1]
        return {one.author: [f"{one.sequence}:{one.hash}"] for one in left_out}

    def open(self, subject: str, data: bytes) -> Frame:
        """The frame in `data` that tells everybody something; raises what it is dropped for."""
        return self._reader.open(subject, data)

    def _hear(self, subject: str, data: bytes) -> None:
        frame = self._reader.open(subject, data)
        sender = frame.header.sender
        if frame.header.event == HEADS:
            heads = event_frames.read_heads(frame)
            for callback in self._own_heads:
                callback(heads)
            return
        batch = event_frames.read_batch(frame)
        self._reader.spend(sender, len(batch.events) + len(batch.revocations))
        events = [community.decode(bytes(raw)) for raw in batch.events]
        revoked = [self._revoke(revocation.decode(bytes(raw))) for raw in batch.revocations]
        if any(revoked):
            self._tell()
        try:
            for event in events:
                self._note(event)
        finally:
            if self._waiting and self._timer is None:
                self._merge_soon()

    def _note(self, event: CommunityEvent) -> None:
        """Puts an event that is not known yet among those to be merged."""
        if self._roster.history.get(event.hash) is not None or event.hash in self._waiting:
            return
        if self._left(event, steady_ms()) < 1:
            raise FrameError("its author writes more than is kept")
        if len(self._waiting) >= _MOST_WAITING:
            raise FrameError("too many events at once; they come again")
        self._waiting[event.hash] = event

    def _merge_soon(self) -> None:
        """At once after a quiet time, otherwise when this process has rested from the last merge."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._rest_until:
            self._merge()
        else:
            self._timer = loop.call_at(self._rest_until, self._merge)

    def _merge(self) -> None:
        self._timer = None
        began, before = time.perf_counter(), self._roster
        self.learn(())
        self._account(before)
        took = time.perf_counter() - began
        self._rest_until = asyncio.get_running_loop().time() + _REST * took

    def _account(self, before: Roster) -> None:
        """Notes for each author how much of it was taken in, and who vouches for whom."""
        if self._roster is before:
            return
        for event in self._roster.events:
            if before.history.get(event.hash) is None:
                vouches = self._vouches(event)
                if vouches != event.author:
                    self._vouching[event.author] = vouches
                self._written.spend(_account_of(event, vouches), 1, steady_ms())

    def _left(self, event: CommunityEvent, now_ms: int) -> float:
        return self._written.left(_account_of(event, self._vouches(event)), now_ms)

    def _vouches(self, event: CommunityEvent) -> str:
        """Who answers for `event`: its author or, for one who never was a member, whoever made the invite
        under which it asks to join. Keys cost nothing, so a stranger has no allowance of its own.
        """
        asked: set[str] = set()
        while not self._belongs(event.author) and event.author not in asked:
            asked.add(event.author)
            known = self._vouching.get(event.author)
            if known is not None:
                return known
            invite = self._invite_of(event)
            if invite is None:
                break
            event = invite
        return event.author

    def _belongs(self, node: str) -> bool:
        """Whether `node` is the root, or is or was a member."""
        roster = self._roster
        return node == roster.community_id or roster.member(node) is not None or roster.is_revoked(node)

    def _invite_of(self, event: CommunityEvent) -> CommunityEvent | None:
        """The invite under which the author of `event` asked to join, None where that is not known here."""
        found: CommunityEvent | None = event
        with contextlib.suppress(HearthNetError):  # malformed: it is left out when it is merged
            while found is not None:
                if isinstance(found.content, Joined):
                    return self._event(found.content.invite_event_hash)
                found = self._event(found.previous)
        return None

    def _event(self, hash_: str) -> CommunityEvent | None:
        return self._roster.history.get(hash_) or self._waiting.get(hash_)

    def _revoke(self, document: TokenRevocation) -> bool:
        """Whether the revocation was new; one that does not hold is dropped."""
        try:
            return self.revocations.add(document, self._roster)
        except HearthNetError as error:
            self.dropped += 1
            _log.info("dropped a revocation: %s", error)
            return False

    def _tell(self) -> None:
        self._heads = None
        for callback in self._changed:
            callback()


def _account_of(event: CommunityEvent, vouches: str) -> str:
    """The name of the allowance that `event` is taken from: strangers must not use up a member's own."""
    return vouches if vouches == event.author else f"{vouches}'s newcomers"
