"""A process on the bus: its identity, its connection, and the parts that share them.

The parts do not know the session: each takes the ports that it needs.
"""

from __future__ import annotations

import asyncio
import logging

from hearthnet.bus.session.batching import Batcher
from hearthnet.bus.session.gossip_frames import SetDigests
from hearthnet.bus.session.keyring import VerificationCache, load_roster
from hearthnet.bus.session.membership import Membership
from hearthnet.bus.session.reply_inbox import ReplyInbox
from hearthnet.bus.session.sender import Sender
from hearthnet.bus.session.tracing import Traces
from hearthnet.bus.session.usage_meter import UsageMeter
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.tasks import TaskSet
from hearthnet.core.timer_wheel import TimerWheel
from hearthnet.nats.client import NatsClient
from hearthnet.protocol import subjects
from hearthnet.protocol.replay import ReplayWindow
from hearthnet.trust.authorization.token import Verified
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity

_log = logging.getLogger(__name__)


class Session:
    """One process of one node, shared by everything that uses the bus."""

    def __init__(self, identity: Identity, roster: Roster, link: NatsClient, home: Home) -> None:
        self.home = home
        self.link = link
        self.identity = identity
        self.node_id = identity.node_id
        self.community = roster.community_id
        self.sender = Sender(identity, self.community, link)
        self.instance = self.sender.instance
        self.membership = Membership(self.node_id, roster)
        self.replies = ReplyInbox(self.sender, self.membership.is_member)
        self.batcher = Batcher(self.sender, self.replies)
        self.timers = TimerWheel()
        self.replay = ReplayWindow()
        self.tokens = Verified()
        self.verified = VerificationCache(identity, home.run / "proved")
        self.traces = Traces(node=self.node_id)
        self.traces.dropped["caller"] = lambda: self.replies.dropped + self.replies.budget.dropped
        self.usage = UsageMeter(home, self.node_id, lambda: self.roster)
        self._tasks = TaskSet()
        link.on_lost(self.replies.on_lost)

    @property
    def roster(self) -> Roster:
        """The community's roster as this process knows it now."""
        return self.membership.roster

    async def listen(self) -> None:
        """Subscribe to the answers to this process."""
        await self.link.subscribe(subjects.replies_to(self.node_id, self.instance), self.replies.on_message)
        await self.link.flush_subscriptions()

    def follow_roster_file(self) -> None:
        """Read the roster file of the home whenever the node says that it holds more than this process.

        For processes without a store. An event announced after such a process has read the file and before
        the server knows its subscription would be unknown to it until it ends.
        """
        self.membership.on_local_heads(self._compare)

    def _compare(self, heads: SetDigests) -> None:
        if self.membership.heads().events.is_behind(heads.events):
            self._tasks.start(self._read_roster_file(), "roster file")

    async def _read_roster_file(self) -> None:
        try:
            saved = await asyncio.to_thread(load_roster, self.home.roster, self.node_id)
        except HearthNetError as error:
            _log.warning("what was missed is not known yet: %s", error)
        else:
            await self.membership.add(saved.events)

    async def close(self) -> None:
        """End the connection, after the waiting data is sent."""
        await self._tasks.close()
        await self.usage.close()
        await self.membership.close()
        await self.link.close()
        self.verified.close()
