"""Exchange of missed events between nodes by comparison of heads.

    when                                              action
    every 20 s, on change and after a reconnection    publish this node's heads to all nodes
    heads of two nodes differ                         the node with fewer events fetches from the other
    events were fetched                               publish to the processes of this node, write to disk

See: docs/decisions/0043.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import Any, Final

import msgspec

from hearthnet.bus.bus import Bus
from hearthnet.bus.session import gossip_frames
from hearthnet.bus.session.gossip_frames import HEADS, RELAY, REVOKED
from hearthnet.bus.session.keyring import load_roster
from hearthnet.core.canonical_json import read_json
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.ids import short_id
from hearthnet.core.rationed_log import RationedLog
from hearthnet.core.tasks import TaskSet
from hearthnet.core.times import now_ms
from hearthnet.protocol import subjects
from hearthnet.protocol.frame import FrameError
from hearthnet.service.community.peer_heads import Neighbours
from hearthnet.service.effects.community_log import CommunityLog, StoredCommunity
from hearthnet.trust import signed_document
from hearthnet.trust.authorization.revocation import TokenRevocation
from hearthnet.trust.community.events import CommunityEvent
from hearthnet.trust.community.removals import removal_target

_log = logging.getLogger(__name__)
ANNOUNCE_SECONDS: Final = 20.0
_LEAST_SECONDS: Final = 0.5
"""Pause before each announcement, to bound their rate; before the first one it lets offers go out first."""
_JITTER_SECONDS: Final = 0.25
"""Longest random delay before a fetch: nodes that are behind do not all fetch at once, and some receive the
events from their neighbours first.
"""
_AGAIN_SECONDS: Final = 1.0
_ASK_SECONDS: Final = 10.0
_ANSWER_SECONDS: Final = 1.0
"""Time within which one of the nodes that are ahead announces its heads to a node that is behind."""
_ANSWER_AGAIN_SECONDS: Final = 5.0
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
        self._drop_log = RationedLog(_log, logging.INFO)
        self._announcing = asyncio.Event()
        self._keeping = asyncio.Event()
        self._asking = asyncio.Event()
        self._neighbours = Neighbours()
        self._clock = asyncio.get_running_loop().time
        self._answering: asyncio.TimerHandle | None = None
        self._answer_after = 0.0
        self._events: set[str] = set()
        self._revocations: set[str] = set()

    async def open(self, remembered: StoredCommunity, home: Home) -> None:
        """Subscribe to heads, start to announce, fetch and store, and publish to this node's processes.

        `remembered` is on disk already and is not stored again. Those of its events that the roster file of
        `home` lacks were stored by an earlier process that ended before it published them.
        """
        self._events = {event.hash for event in remembered.events} | remembered.known
        self._revocations = {_name(one) for one in remembered.revocations}
        await self._peer.link.subscribe(subjects.events_of(HEADS), self._on_heads)
        self._peer.link.on_restored(self._back)
        self._membership.on_change(self._changed)
        self._changed()
        for work in (self._announce, self._ask, self._keep):
            self._tasks.start(work(), work.__name__)
        saved = await asyncio.to_thread(load_roster, home.roster, self._peer.node_id)
        news = (one for one in self._peer.roster.events if saved.history.get(one.hash) is None)
        await self.relay(tuple(news), ())

    async def close(self) -> None:
        """Stop all tasks of the exchange."""
        self._answered()
        await self._tasks.close()

    async def relay(self, events: tuple[CommunityEvent, ...], revoked: tuple[TokenRevocation, ...]) -> None:
        """Publish `events` and `revoked` to the processes of this node."""
        for body in gossip_frames.batches(events, revoked):
            await gossip_frames.publish(self._peer.sender, RELAY, body)

    def ask(self, node: str) -> None:
        """Call `node`, which has shown by its full heads that it holds events that are not held here.

        Its digest need not say so: of two that differ the one with fewer events asks, and may find that what
        the other has more is what it does not take in.
        """
        self._neighbours.holds_more(node, self._clock())
        self._asking.set()

    async def publish_revocation(self, revoked: TokenRevocation) -> None:
        """Publish a stored revocation of a token to all nodes."""
        for body in gossip_frames.batches((), (revoked,)):
            await gossip_frames.publish(self._peer.sender, REVOKED, body)

    def _changed(self) -> None:
        self._announcing.set()
        self._keeping.set()

    async def _back(self) -> None:
        self._announcing.set()

    async def _announce(self) -> None:
        while True:
            await asyncio.sleep(_LEAST_SECONDS)
            self._announcing.clear()
            body = msgspec.json.encode(self._membership.heads())
            with contextlib.suppress(HearthNetError):
                await gossip_frames.publish(self._peer.sender, HEADS, body)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ANNOUNCE_SECONDS * random.uniform(0.8, 1.2)):
                    await self._announcing.wait()

    def _on_heads(self, subject: str, data: bytes, absent: bool) -> None:
        if not self._membership.reader.budget.admits(subject, len(data)):
            return
        try:
            frame = self._membership.reader.open(subject, data)
            heads = read_json(frame.body, gossip_frames.DIGESTS)
        except (FrameError, HearthNetError) as error:
            self._drop_log.write("dropped heads: %s", error)
            return
        if frame.header.sender == self._peer.node_id:
            return
        self._neighbours.record(frame.header.sender, heads, self._clock())
        ours = self._membership.heads()
        if ours.is_behind(heads):
            self._asking.set()
        elif heads.is_behind(ours):
            self._answer_soon()
        else:
            self._answered()

    def _answer_soon(self) -> None:
        """Announce heads after a random delay, unless another node does so first."""
        now = self._clock()
        if self._answering is None and now >= self._answer_after:
            self._answer_after = now + _ANSWER_AGAIN_SECONDS
            delay = random.uniform(0, _ANSWER_SECONDS)
            self._answering = asyncio.get_running_loop().call_later(delay, self._answer)

    def _answer(self) -> None:
        self._answering = None
        self._announcing.set()

    def _answered(self) -> None:
        """Cancel the delayed announcement: another node has announced equal heads."""
        if self._answering is not None:
            self._answering.cancel()
            self._answering = None

    async def _ask(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._neighbours.pause(self._membership.heads(), self._clock())):
                    await self._asking.wait()
            self._asking.clear()
            await asyncio.sleep(random.uniform(0, _JITTER_SECONDS))
            node = self._neighbours.due(self._membership.heads(), self._clock())
            if node is not None:
                await self._fetch(node)

    async def _fetch(self, node: str) -> None:
        try:
            anything = self._membership.is_member(node) and await self._pages(node)
        except HearthNetError as error:
            self._neighbours.silent(node, self._clock())
            _log.warning("%s knows more, but does not say it: %s", short_id(node), error)
        else:
            self._neighbours.gave(node, anything, self._clock())

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
                known_revocations = set(self._membership.revocations.current(now_ms()))
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
        current = {_name(one): one for one in self._membership.revocations.current(now_ms())}
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
