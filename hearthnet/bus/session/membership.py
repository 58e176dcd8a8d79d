"""The members of the community as this process knows them: verified events from the bus.

The roster is a grow-only set of signed events, so neither their order nor repetitions matter. Known events
are skipped before any signature is checked. Missed events are fetched when nodes compare the extents of their
records (docs/decisions/0043).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

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
from hearthnet.core.canonical_json import digest, read_json
from hearthnet.core.errors import HearthNetError
from hearthnet.core.rate_limits import TokenBucket
from hearthnet.core.times import now_ms, steady_ms
from hearthnet.nats.client import NatsClient
from hearthnet.protocol import subjects
from hearthnet.protocol.frame import FrameError
from hearthnet.trust.authorization import revocation
from hearthnet.trust.authorization.authority import CallerStatus
from hearthnet.trust.authorization.revocation import Revocations, TokenRevocation
from hearthnet.trust.community import events
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.events import CommunityEvent, Joined
from hearthnet.trust.community.roster import RANK, Roster

_log = logging.getLogger(__name__)
_HEADS_MS: Final = 30_000
_MOST_WAITING: Final = 4_000
_MOST_EARLY: Final = 200
"""Maximum of events kept for a moment because events that they build on are on their way."""
_REST: Final = 9
"""Pause after a merge, as a multiple of its duration: merging takes at most a tenth of a core."""
_WRITTEN: Final = 2_000
_WRITTEN_PER_SECOND: Final = 0.2
"""Events accepted of one member, and as many of all strangers who request to join under its invites, at once
and in the long run: all nodes keep them for good.
"""


class Membership:
    """The roster and the revoked tokens of one process of `node`, with callbacks for changes."""

    def __init__(self, node: str, roster: Roster) -> None:
        self._node = node
        self._roster = roster
        self._statuses: dict[str, CallerStatus] = {}
        self._statuses_of = roster
        self.revocations = Revocations()
        self.reader = GossipReader(node, roster.community_id, lambda sender: self._roster.level(sender))
        self._written = TokenBucket(_WRITTEN, _WRITTEN_PER_SECOND)
        self._vouchers: dict[str, str] = {}
        self._waiting: dict[str, CommunityEvent] = {}
        self._early: tuple[CommunityEvent, ...] = ()
        self._rest_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._changed: list[Callable[[], None]] = []
        self._local_heads: list[Callable[[SetDigests], None]] = []
        self._heads: SetDigests | None = None
        self._heads_until = 0
        self.dropped = 0

    @property
    def roster(self) -> Roster:
        """The present roster; each change makes another object."""
        return self._roster

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each change of the roster or the revoked tokens."""
        self._changed.append(callback)

    def on_local_heads(self, callback: Callable[[SetDigests], None]) -> None:
        """Call `callback` with the heads that this node's `auth` service publishes."""
        self._local_heads.append(callback)

    def is_member(self, node: str) -> bool:
        """Return whether `node` belongs to the community now, at any level."""
        return RANK[self._roster.level(node)] >= RANK["member"]

    def status(self, node: str) -> CallerStatus:
        """Return the present status of `node`.

        Cached for members until the roster changes; an invite may expire at any moment.
        """
        roster = self._roster
        if roster is not self._statuses_of:
            self._statuses_of = roster
            self._statuses.clear()
        known = self._statuses.get(node)
        if known is None:
            known = CallerStatus(node, roster.level(node, now_ms()), roster.is_revoked(node))
            if roster.member(node) is not None:
                self._statuses[node] = known
        return known

    def heads(self) -> SetDigests:
        """Return the extent of this process's record, without expired revocations."""
        now = steady_ms()
        if self._heads is None or now >= self._heads_until:
            self._heads_until = now + _HEADS_MS
            current = self.revocations.current(now_ms())
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

    def on_message(self, subject: str, data: bytes, absent: bool) -> None:
        """Process one event frame; a faulty one is dropped and counted."""
        try:
            self._read(subject, data)
        except (FrameError, HearthNetError) as error:
            self.dropped += 1
            _log.info("dropped an event: %s", error)

    def add(self, events: Iterable[CommunityEvent], revocations: Iterable[TokenRevocation] = ()) -> bool:
        """Add documents that this node made or kept; return whether any of them was new.

        Invalid events are skipped; an event that builds on missing ones waits for them.
        """
        before = self._roster
        offered = [*self._early, *self._waiting.values(), *events]
        self._waiting.clear()
        self._roster, early = rosters.merge_partial(before, offered)
        self._early = tuple({one.hash: one for one in early}.values())[-_MOST_EARLY:]
        added = [self._revoke(one) for one in revocations]
        if self._roster is before and not any(added):
            return False
        self._notify()
        return True

    def add_fetched(self, events: Iterable[CommunityEvent], revocations: Iterable[TokenRevocation]) -> bool:
        """Add documents of another node as `add`, with a limit per author."""
        before, now = self._roster, steady_ms()
        new = self.add([one for one in events if self._allowance(one, now) >= 1], revocations)
        self._charge(before)
        return new

    def over_limit(self, events: Iterable[CommunityEvent]) -> dict[str, list[str]]:
        """Return the last of each author's `events` that `add_fetched` does not accept yet, as heads.

        With these, other nodes are called for the events of the remaining authors.
        """
        now = steady_ms()
        left_out = [one for one in events if self._allowance(one, now) < 1]
        return {one.author: [f"{one.sequence}:{one.hash}"] for one in left_out}

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
        revoked = [self._revoke(revocation.decode(bytes(raw))) for raw in batch.revocations]
        if any(revoked):
            self._notify()
        try:
            for event in received:
                self._queue(event)
        finally:
            if self._waiting and self._timer is None:
                self._merge_soon()

    def _queue(self, event: CommunityEvent) -> None:
        """Add an unknown event to those to be merged."""
        if self._roster.history.get(event.hash) is not None or event.hash in self._waiting:
            return
        if self._allowance(event, steady_ms()) < 1:
            raise FrameError("its author writes more than is kept")
        if len(self._waiting) >= _MOST_WAITING:
            raise FrameError("too many events at once; they come again")
        self._waiting[event.hash] = event

    def _merge_soon(self) -> None:
        """Merge at once after a quiet time, otherwise after the pause that follows the last merge."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._rest_until:
            self._merge()
        else:
            self._timer = loop.call_at(self._rest_until, self._merge)

    def _merge(self) -> None:
        self._timer = None
        began, before = time.perf_counter(), self._roster
        self.add(())
        self._charge(before)
        took = time.perf_counter() - began
        self._rest_until = asyncio.get_running_loop().time() + _REST * took

    def _charge(self, before: Roster) -> None:
        """Charge each new event to its account, and record the vouchers of strangers."""
        if self._roster is before:
            return
        for event in self._roster.events:
            if before.history.get(event.hash) is None:
                vouches = self._voucher_of(event)
                if vouches != event.author:
                    self._vouchers[event.author] = vouches
                self._written.spend(_account_of(event, vouches), 1, steady_ms())

    def _allowance(self, event: CommunityEvent, now_ms: int) -> float:
        return self._written.left(_account_of(event, self._voucher_of(event)), now_ms)

    def _voucher_of(self, event: CommunityEvent) -> str:
        """Return the node that answers for `event`.

        It is its author or, if that never was a member, the author of the invite under which it requests to
        join. Keys are free, so a stranger has no allowance of its own.
        """
        asked: set[str] = set()
        while not self._is_known(event.author) and event.author not in asked:
            asked.add(event.author)
            known = self._vouchers.get(event.author)
            if known is not None:
                return known
            invite = self._invite_of(event)
            if invite is None:
                break
            event = invite
        return event.author

    def _is_known(self, node: str) -> bool:
        """Return whether `node` is the root, or is or was a member."""
        roster = self._roster
        return node == roster.community_id or roster.member(node) is not None or roster.is_revoked(node)

    def _invite_of(self, event: CommunityEvent) -> CommunityEvent | None:
        """Return the invite of the join request of the author of `event`, None if unknown here."""
        found: CommunityEvent | None = event
        with contextlib.suppress(HearthNetError):  # malformed: left out by the merge
            while found is not None:
                if isinstance(found.content, Joined):
                    return self._event(found.content.invite_event_hash)
                found = self._event(found.previous)
        return None

    def _event(self, hash_: str) -> CommunityEvent | None:
        return self._roster.history.get(hash_) or self._waiting.get(hash_)

    def _revoke(self, document: TokenRevocation) -> bool:
        """Add a revocation and return whether it was new; an invalid one is dropped."""
        try:
            return self.revocations.add(document, self._roster)
        except HearthNetError as error:
            self.dropped += 1
            _log.info("dropped a revocation: %s", error)
            return False

    def _notify(self) -> None:
        self._heads = None
        for callback in self._changed:
            callback()


def _account_of(event: CommunityEvent, vouches: str) -> str:
    """Return the name of the allowance for `event`; strangers must not use up a member's own."""
    return vouches if vouches == event.author else f"{vouches}'s newcomers"
