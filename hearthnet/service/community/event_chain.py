"""Appending of this node's events to the community's event log.

Each event names its predecessor, so two events must not be made at once: a lock orders them within this
process. If another process of the node has filled the place first, the log returns that event and the new one
is made again. An event is on disk before it is published.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from hearthnet.bus.session import gossip_frames
from hearthnet.bus.session.gossip_frames import LOG
from hearthnet.bus.session.session import Session
from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.core.restore_mark import read_mark
from hearthnet.service.effects.community_log import CommunityLog
from hearthnet.trust.community.events import CommunityEvent
from hearthnet.trust.community.roster import Roster

_log = logging.getLogger(__name__)
Make = Callable[[Roster], tuple[CommunityEvent, ...]]
"""Makes an event of this node, preceded by new events of other authors on which it builds. If the roster
holds the returned event already, it is the answer to a repeated call.
"""


class EventChain:
    """Writer of this node's events to the community's log and to the roster of this process."""

    def __init__(self, peer: Session, log: CommunityLog) -> None:
        self._peer = peer
        self._log = log
        self._one_at_a_time = asyncio.Lock()

    @property
    def roster(self) -> Roster:
        """The events that the node has now."""
        return self._peer.membership.roster

    async def append(self, make: Make, check: Callable[[], None]) -> tuple[CommunityEvent, bool]:
        """Store, merge and publish the event that `make` returns.

        Returns that event and whether the roster held it before. `check` raises if the
        consent of the call has expired, so that nothing new may be made. After `partition` the event may be
        stored; a repeated call finds it through `make`.

        Raises:
            HearthNetError: any error of `make`; `partition` if the store does not answer, or if the home was
                restored and has not heard yet which events it had written; `capacity_exceeded` if the disk is
                full; `internal_error` if a stored event is not valid.
        """
        membership = self._peer.membership
        async with self._one_at_a_time:
            while True:
                # The event is judged with all others, which takes longer the more there are.
                *others, own = await asyncio.to_thread(make, membership.roster)
                if membership.roster.history.get(own.hash) is not None:
                    return own, True
                check()
                await asyncio.to_thread(self._check_restored, membership.roster)
                for other in others:
                    await self._log.keep(other)
                stored = await self._log.claim(own)
                await membership.add([*others, stored])
                if membership.roster.history.get(stored.hash) is None:
                    raise HearthNetError(
                        "internal_error", f"the log keeps {stored.hash}, which does not hold"
                    )
                await self._publish([*others, stored])
                if stored.hash == own.hash:
                    return own, False

    def _check_restored(self, roster: Roster) -> None:
        """Check that a new event cannot take the place of one that was written after a backup.

        Raises:
            HearthNetError: `partition` while no other member has announced its events.
        """
        mark = read_mark(self._peer.home)
        others = len(roster.members) > 1
        if mark is not None and others and not mark.may_write_events:
            raise Unavailable(
                "this node was restored from a backup, and waits for another member that knows which events "
                "it wrote later; connect to one, or, if there is none any more: hearthnet backup alone",
                rule="provider_starting",
            )

    async def _publish(self, events: list[CommunityEvent]) -> None:
        """Publish `events`; a node that misses them fetches them after comparing heads."""
        try:
            for body in gossip_frames.batches(events, ()):
                await gossip_frames.publish(self._peer.sender, LOG, body)
        except HearthNetError as error:
            _log.warning("not told, others will ask for it: %s", error)
