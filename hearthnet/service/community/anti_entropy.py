"""Exchange of missed events between nodes by comparison of heads, and comparison of their clocks.

When nodes compare, and which of them fetches, is the same for all logs (heads_exchange.py). Fetched events
and revocations are published to the processes of this node, and written to the disk.

See: docs/decisions/0043.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import msgspec

from hearthnet.bus.bus import Bus
from hearthnet.bus.session import gossip_frames
from hearthnet.bus.session.gossip_frames import HEADS, RELAY, REVOKED, SetDigests
from hearthnet.bus.session.keyring import load_roster
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.ids import short_id
from hearthnet.core.restore_mark import read_mark, write_mark
from hearthnet.core.tasks import TaskSet
from hearthnet.core.times import least_ms
from hearthnet.service.community.clock_keeper import ClockKeeper
from hearthnet.service.community.heads_exchange import HeadsExchange
from hearthnet.service.effects.community_log import CommunityLog, StoredCommunity
from hearthnet.trust import signed_document
from hearthnet.trust.authorization.revocation import TokenRevocation
from hearthnet.trust.community.events import CommunityEvent
from hearthnet.trust.community.removals import removal_target

_log = logging.getLogger(__name__)
_AGAIN_SECONDS: Final = 1.0
_ASK_SECONDS: Final = 10.0
_PAGE: Final = 500
_MOST_PAGES: Final = 40


class AntiEntropy:
    """Exchange of events and revocations with other nodes."""

    def __init__(self, bus: Bus, log: CommunityLog) -> None:
        self._bus = bus
        self._log = log
        self._peer = bus.peer
        self._membership = bus.peer.membership
        self._tasks = TaskSet()
        self._clock = ClockKeeper(bus.peer)
        self._keeping = asyncio.Event()
        self._heads = HeadsExchange(
            bus.peer,
            HEADS,
            self._membership.reader,
            gossip_frames.DIGESTS,
            self._membership.heads,
            self._pages,
            self._compared,
        )
        self._events: set[str] = set()
        self._revocations: set[str] = set()
        self._waits_to_hear = False
        """Whether the home was restored, and no other member is known to hold the same events."""

    async def open(self, remembered: StoredCommunity, home: Home) -> None:
        """Subscribe to heads, start to announce, fetch and store, and publish to this node's processes.

        `remembered` is on disk already and is not stored again. Those of its events that the roster file of
        `home` lacks were stored by an earlier process that ended before it published them.
        """
        self._events = {event.hash for event in remembered.events} | remembered.known
        self._revocations = {_name(one) for one in remembered.revocations}
        self._membership.on_change(self._changed)
        self._home = home
        mark = await asyncio.to_thread(read_mark, home)
        self._waits_to_hear = mark is not None and not mark.may_write_events
        self._changed()
        await self._heads.open()
        await self._clock.open()
        self._tasks.start(self._keep(), "keep")
        saved = await asyncio.to_thread(load_roster, home.roster, self._peer.node_id)
        news = (one for one in self._peer.roster.events if saved.history.get(one.hash) is None)
        await self.relay(tuple(news), ())

    async def close(self) -> None:
        """Stop all tasks of the exchange."""
        await self._clock.close()
        await self._heads.close()
        await self._tasks.close()

    async def relay(self, events: tuple[CommunityEvent, ...], revoked: tuple[TokenRevocation, ...]) -> None:
        """Publish `events` and `revoked` to the processes of this node."""
        for body in gossip_frames.batches(events, revoked):
            await gossip_frames.publish(self._peer.sender, RELAY, body)

    def ask(self, node: str) -> None:
        """Fetch from `node` although it may have fewer events (`HeadsExchange.ask`)."""
        self._heads.ask(node)

    async def publish_revocation(self, revoked: TokenRevocation) -> None:
        """Publish a stored revocation of a token to all nodes."""
        for body in gossip_frames.batches((), (revoked,)):
            await gossip_frames.publish(self._peer.sender, REVOKED, body)

    def _changed(self) -> None:
        self._heads.announce()
        self._keeping.set()

    def _compared(self, node: str, heads: SetDigests) -> None:
        if self._waits_to_hear and self._membership.heads().events == heads.events:
            self._waits_to_hear = False
            self._tasks.start(self._hear(node), "restored")

    async def _hear(self, node: str) -> None:
        """Record that `node` holds no event that is missing here: this node may write events again.

        Its own events of after the backup came from there, too.
        """
        if not self._membership.is_member(node):
            self._waits_to_hear = True
            return
        mark = await asyncio.to_thread(read_mark, self._home)
        if mark is not None:
            heard = msgspec.structs.replace(mark, heard_from=node)
            await asyncio.to_thread(write_mark, self._home, heard)
            _log.info("restored: %s holds the same events", short_id(node))

    async def _pages(self, node: str) -> bool:
        anything = False
        beyond: dict[str, list[str]] = {}
        for _ in range(_MOST_PAGES):
            known, waited = self._membership.roster, self._membership.waiting_removals
            asked = {"heads": known.heads() | beyond, "limit": _PAGE}
            reply = await self._bus.call(
                "community.sync@1.0",
                {"params": {}, "input": asked},
                node=node,
                timeout_seconds=_ASK_SECONDS,
            )
            received = _sync_output(reply.output)
            revoked = tuple(
                one
                for one in signed_document.readable(received.revocations, TokenRevocation)
                if not self._membership.revocations.revoked(one.issuer, one.token_id)
            )
            events = signed_document.readable(received.events, CommunityEvent)
            new, full = await self._membership.add_fetched(events, revoked, node)
            # This node's other processes refuse whom a removal names as early as this one.
            waiting = tuple(one for one in self._membership.waiting_removals if one not in waited)
            if new or waiting:
                now = self._membership.roster
                added = (one for one in now.events if known.history.get(one.hash) is None)
                known_revocations = set(self._membership.revocations.current(least_ms()))
                valid = tuple(one for one in revoked if one in known_revocations)
                await self.relay((*waiting, *added), valid)
            anything = anything or new
            # What follows an event that was passed over is passed over, too.
            passed_over = beyond | {
                one.author: [f"{one.sequence}:{one.hash}"]
                for one in events
                if one.author in full or one.author in beyond
            }
            if not (received.more and (new or passed_over != beyond)):
                break
            beyond = passed_over
        return anything

    async def _keep(self) -> None:
        """Store fetched events and revocations, with retries until they are on disk."""
        while True:
            await self._keeping.wait()
            self._keeping.clear()
            try:
                await self._keep_all()
            except HearthNetError as error:
                _log.warning("not on the disk yet: %s", error)
                await asyncio.sleep(_AGAIN_SECONDS)
                self._keeping.set()

    async def _keep_all(self) -> None:
        # A removal that waits for its place acts at the next start, too, and in processes that start later.
        held = (*self._membership.waiting_removals, *self._membership.roster.events)
        new = [one for one in held if one.hash not in self._events]
        for event in sorted(new, key=lambda one: not removal_target(one)):
            await self._log.keep(event)
            self._events.add(event.hash)
        current = {_name(one): one for one in self._membership.revocations.current(least_ms())}
        self._revocations &= current.keys()
        for name in current.keys() - self._revocations:
            await self._log.keep_revocation(current[name])
            self._revocations.add(name)


def _name(revoked: TokenRevocation) -> str:
    return f"{revoked.issuer} {revoked.token_id}"


class _SyncOutput(msgspec.Struct):
    """Output of `community.sync`; its documents are validated one by one."""

    events: list[Any]
    revocations: list[Any]
    more: bool


def _sync_output(output: Any) -> _SyncOutput:
    """Return the unchecked output of another node as a struct.

    Raises:
        HearthNetError: `internal_error` if the output does not fit.
    """
    try:
        return msgspec.convert(output, _SyncOutput)
    except msgspec.ValidationError as error:
        raise HearthNetError("internal_error", f"its answer does not fit: {error}") from error
