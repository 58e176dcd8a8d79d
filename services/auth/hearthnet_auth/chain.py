"""The own events of this node: made one at a time, on the disk before anybody hears of them.

Each event names the one before it, so no two may be made at once. Here they wait for each other; should
another process of the node have been faster, the log has its event in that place, and this one is made anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from hearthnet.bus import event_frames
from hearthnet.bus.event_frames import LOG
from hearthnet.bus.peer import Peer
from hearthnet.errors import HearthNetError
from hearthnet.service.community_log import CommunityLog
from hearthnet.trust.community import CommunityEvent
from hearthnet.trust.roster import Roster

_log = logging.getLogger(__name__)
Make = Callable[[Roster], tuple[CommunityEvent, ...]]
"""Makes an own event, after those of others that it builds on and that are new, too. An own event that the
roster has already is the answer to a repetition.
"""


class Chain:
    """Appends to the community's log and to what this process knows."""

    def __init__(self, peer: Peer, log: CommunityLog) -> None:
        self._peer = peer
        self._log = log
        self._one_at_a_time = asyncio.Lock()

    async def append(self, make: Make) -> tuple[CommunityEvent, bool]:
        """The event that `make` made, kept and merged and told, and whether it was there before.

        Raises what `make` raises, `partition` where the store does not answer and `capacity_exceeded` where
        the disk is full; after `partition` the event may be there, and `make` will find it.
        """
        membership = self._peer.membership
        async with self._one_at_a_time:
            while True:
                *others, own = make(membership.roster)
                if membership.roster.history.get(own.hash) is not None:
                    return own, True
                for other in others:
                    await self._log.keep(other)
                kept = await self._log.claim(own)
                membership.learn([*others, kept])
                if membership.roster.history.get(kept.hash) is None:
                    raise HearthNetError("internal_error", f"the log keeps {kept.hash}, which does not hold")
                await self._tell([*others, kept])
                if kept.hash == own.hash:
                    return own, False

    async def _tell(self, events: list[CommunityEvent]) -> None:
        """Tells everybody. Who does not hear of it finds it out when heads are compared."""
        try:
            for body in event_frames.batches(events, ()):
                await event_frames.publish(self._peer, LOG, body)
        except HearthNetError as error:
            _log.warning("not told, others will ask for it: %s", error)
