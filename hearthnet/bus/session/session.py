"""A process on the bus: its node's identity, its instance, its connection."""

from __future__ import annotations

from typing import Any, Final

from hearthnet.bus.session.batching import Batcher
from hearthnet.bus.session.clock_skew import ClockOffsets
from hearthnet.bus.session.loopback import LocalProvider
from hearthnet.bus.session.membership import Membership
from hearthnet.bus.session.reply_inbox import ReplyInbox
from hearthnet.bus.session.tracing import Traces
from hearthnet.bus.session.verification_cache import VerificationCache
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.node_state import GATEWAY, read_node_state
from hearthnet.core.timer_wheel import TimerWheel
from hearthnet.core.times import now_ms
from hearthnet.nats.client import NatsClient
from hearthnet.protocol import subjects
from hearthnet.protocol.frame import BoxKeys
from hearthnet.protocol.header import Header, Kind
from hearthnet.protocol.replay import ReplayWindow
from hearthnet.trust.authorization.authority import CallerStatus
from hearthnet.trust.authorization.revocation import Revocations
from hearthnet.trust.authorization.token import Verified
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity

_JUST_READY_MS: Final = 1_000


class Session:
    """One process of one node, shared by everything that uses the bus."""

    def __init__(self, identity: Identity, roster: Roster, link: NatsClient, home: Home) -> None:
        self.home = home
        self.identity = identity
        self.membership = Membership(identity.node_id, roster)
        self.link = link
        self.node_id = identity.node_id
        self.community = roster.community_id
        self.instance = ids.new_instance()
        self.keys = BoxKeys(identity)
        self.proved = VerificationCache(identity, home.run / "proved")
        self.replay = ReplayWindow()
        self.clocks = ClockOffsets()
        self.alarms = TimerWheel()
        self.tokens = Verified()
        self.replies = ReplyInbox(
            self.node_id, self.instance, self.community, self.keys, self.membership.is_member
        )
        self.packer = Batcher(self)
        self.traces = Traces(node=self.node_id)
        self.traces.dropped["caller"] = lambda: self.replies.dropped
        self._standings: dict[str, CallerStatus] = {}
        self._judged = roster
        self.inside: LocalProvider | None = None
        """The host of this process's own offers, if there is one."""
        link.on_lost(self.replies.on_lost)

    @property
    def roster(self) -> Roster:
        """The community's roster as this process knows it now."""
        return self.membership.roster

    @property
    def revocations(self) -> Revocations:
        """The revoked tokens that this process knows."""
        return self.membership.revocations

    async def listen(self) -> None:
        """Subscribe to the answers to this process."""
        await self.link.subscribe(subjects.replies_to(self.node_id, self.instance), self.replies.on_message)
        await self.link.settle()

    def starting(self, asked_ms: int = 0) -> list[str]:
        """Return the services of this node that are starting, whose offers are missing so far.

        One that became ready a moment ago, or after `asked_ms` (Unix milliseconds), is included: a find
        shortly before may have missed its offers.
        """
        try:
            services = read_node_state(self.home).services
        except HearthNetError:
            return []
        lately = min(now_ms(), asked_ms or now_ms()) - _JUST_READY_MS
        return [
            service.name
            for service in services
            if service.name != GATEWAY
            and (
                service.state in ("starting", "waiting")
                or (service.state == "ready" and service.since > lately)
            )
        ]

    def standing(self, node: str) -> CallerStatus:
        """Return the present standing of `node`.

        Cached for members until the roster changes; an invite may expire at any moment.
        """
        roster = self.membership.roster
        if roster is not self._judged:
            self._judged = roster
            self._standings.clear()
        known = self._standings.get(node)
        if known is None:
            known = CallerStatus(node, roster.level(node, now_ms()), roster.is_revoked(node))
            if roster.member(node) is not None:
                self._standings[node] = known
        return known

    def header(self, kind: Kind, frame_id: str, **fields: Any) -> Header:
        """Make a header of this process, with the present time by the receiver's clock if known."""
        return Header(
            kind=kind,
            id=frame_id,
            sender=self.node_id,
            from_instance=self.instance,
            community=self.community,
            time=self.clocks.time_at(fields.get("to", "")),
            **fields,
        )
