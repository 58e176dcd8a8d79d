"""Interest-based discovery: one find, then the announcements.

The first use of a capability sends a find for its offers and subscribes to its announcements. A process's
memory of the mesh grows with its use of it, not with the size of the community.

See: docs/protocol/discovery.md#finds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from hearthnet.bus.routing.health import Retries
from hearthnet.bus.routing.offer_registry import OfferView, Registry
from hearthnet.bus.routing.routing_table import RoutingTable
from hearthnet.bus.routing.session_affinity import SessionAffinity
from hearthnet.bus.session.frame_budget import FrameBudget
from hearthnet.contracts.contract import Contract
from hearthnet.core import ids
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.core.node_state import read_node_state
from hearthnet.core.rationed_log import RationedLog
from hearthnet.core.times import now_ms, steady_ms
from hearthnet.protocol import frame as frames
from hearthnet.protocol import offer as offers
from hearthnet.protocol import subjects
from hearthnet.protocol.frame import MAX_FOREIGN_BYTES, Frame, FrameError
from hearthnet.protocol.header import SUBJECT_KINDS, Header
from hearthnet.protocol.offer import REPUBLISH_MS

if TYPE_CHECKING:
    from hearthnet.bus.session.session import Session

_log = logging.getLogger(__name__)
_drop_log: Final = RationedLog(_log)
GRACE_SECONDS: Final = 0.08
"""Wait after the last answer: the jitter of other providers and a way back. A listing waits as long as that
answer took, if that is longer: on a busy machine other answers are slow as well.
"""
NOBODY_SECONDS: Final = 0.5
"""Wait of a find without an answer, if the topic was searched for `BUSY_SECONDS` recently."""
BUSY_SECONDS: Final = 2.0
"""Wait of a find for a caller without a provider: the server reports at once if there are no
subscribers, so silence means that a provider is busy.
"""
_SEARCHED_SECONDS: Final = REPUBLISH_MS / 1000
"""Interval in which a search of `BUSY_SECONDS` is not repeated: busy providers announce themselves later."""
_BURST: Final = 1_024
_PER_SECOND: Final = 50
"""Announcements of another node that are read, at once and in the long run: twice as many as offers are kept
of it, for a restart of all its processes.
"""
_TICK_SECONDS: Final = 0.02
_LATE_SECONDS: Final = 0.05
"""A tick later than this was delayed by work of this process, as unread answers may be: not counted."""


class FindRequest:
    """One find in progress, shared by all who wait for its answers; detects its end.

    `silent` takes the services that have answered, and returns whether a further one of this node runs: that
    one is busy (loading a model), and must not count as offering nothing.
    """

    def __init__(
        self, own: str, registry: Registry, silent: Callable[[set[str]], bool], *, lists: bool
    ) -> None:
        self._own = own
        self._lists = lists
        self._registry = registry
        self._silent = silent
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._services: set[str] = set()
        self._senders: set[tuple[str, str]] = set()
        """The nodes that have answered, each with an empty instance and with those of its offers."""
        self._waiting = 0
        self._has_no_responders = self._is_lost = False
        self._began_at = self._answered_at = self._loop.time()
        self.settled = False
        """Whether the providers that answer as fast as usual have answered."""
        self.over = self.exhausted = False
        """`exhausted`: it ended after `BUSY_SECONDS`."""
        self.forget: Callable[[], None] = lambda: None
        self._tick_later()

    @property
    def is_unanswered(self) -> bool:
        """Return whether there are subscribers, as far as the server knows, and no answer has come."""
        return not (self._senders or self._has_no_responders)

    def has_answered(self, node: str, instance: str) -> bool:
        """Return whether `node` has answered, or its process `instance` unless that is empty."""
        return (node, instance) in self._senders

    def on_frame(self, frame: Frame) -> None:
        """Add an answer: the offers of one process."""
        sender = frame.header.sender
        try:
            if frame.header.kind != "offer":
                raise FrameError("not an offer")
            if len(frame.body) > MAX_FOREIGN_BYTES and sender != self._own:
                raise FrameError(f"{len(frame.body)} bytes of offers are too many")
            found = offers.decode(frame.body).offers
            self._registry.update(sender, found, withdrawn=False, heard_ms=steady_ms())
        except (FrameError, HearthNetError) as error:
            _drop_log.write("dropped an offer: %s", error)
            return
        if sender == self._own:  # another node may name its services as it likes
            self._services |= {record.service for record in found}
        self._senders |= {(sender, ""), *((sender, record.instance) for record in found)}
        self._answered_at = self._loop.time()
        self.settled = False
        self.wake()

    def on_no_responders(self, node: str) -> None:
        """End the find, since the server reports that there are no subscribers.

        A report in the name of another node does not count: finds are public, and any node may answer.
        """
        if node == self._own:
            self._has_no_responders = True
            self.end()

    def on_lost(self) -> None:
        """End the find, since the connection and its answers are lost."""
        self._is_lost = True
        self.end()

    def end(self) -> None:
        """Accept no more answers; a later caller sends a new find."""
        self.over = True
        self._timer.cancel()
        self.forget()
        self.wake()

    def wake(self) -> None:
        """Make waiting callers check again, after an answer or an announcement."""
        woken, self._changed = self._changed, asyncio.Event()
        woken.set()

    async def wait(self, enough: Callable[[], bool], content: Callable[[], bool]) -> None:
        """Wait until there is `enough`, or no more answers can be expected.

        The latter is so when the usual answers have come and `content` is true of them, when there are no
        subscribers, and after `BUSY_SECONDS`.

        Raises:
            HearthNetError: `partition` if the connection broke, so that nothing is known.
        """
        self._waiting += 1
        try:
            while not (self.over or enough() or (self.settled and content())):
                await self._changed.wait()
        finally:
            self._waiting -= 1
            if self.settled and not self._waiting:
                self.end()
        if self._is_lost:
            raise Unavailable("the connection to the server broke", rule="connection_lost")

    def _tick_later(self) -> None:
        self._due = self._loop.time() + _TICK_SECONDS
        self._timer = self._loop.call_at(self._due, self._tick)

    def _tick(self) -> None:
        now = self._loop.time()
        if now - self._due > _LATE_SECONDS:
            self._began_at += now - self._due
            self._answered_at += now - self._due
        self.exhausted = now - self._began_at >= BUSY_SECONDS
        if self.exhausted or (self.settled and not self._waiting):
            self.end()
            return
        if not self.settled and self._is_quiet(now) and not self._silent(self._services):
            self.settled = True
            self.wake()
        self._tick_later()

    def _is_quiet(self, now: float) -> bool:
        """Return whether the last answer is so old that another would have come."""
        if not self._senders:
            return now - self._began_at >= NOBODY_SECONDS
        took = self._answered_at - self._began_at if self._lists else 0.0
        return now - self._answered_at >= max(GRACE_SECONDS, took)


def _offering(peer: Session, wanted: str) -> set[str]:
    """Return the ready services of this node that offer `wanted`, from the supervisor's state."""
    try:
        services = read_node_state(peer.home).services
    except HearthNetError:
        return set()
    return {
        service.name
        for service in services
        if service.state == "ready"
        and any(wanted in (subjects.EVERYTHING, _topic(line)) for line in service.offers)
    }


def _topic(line: str) -> str:
    """Return the topic of an offer in the state's form: `rag.query@1.0 corpus=system`."""
    return subjects.topic(parse_capability(line.partition(" ")[0]))


class Discovery:
    """This process's view of the mesh, built by finds and announcements as it is used."""

    def __init__(self, peer: Session) -> None:
        self._peer = peer
        self.registry = Registry(peer.node_id)
        self.budget = FrameBudget(peer.node_id, "adv", _BURST, _PER_SECOND)
        self.tables: dict[str, RoutingTable] = {}
        """The offers that suit each followed contract, by its id."""
        self.sessions = SessionAffinity()
        self.retries = Retries(steady_ms())
        self._followed: set[str] = set()
        self._asked: set[str] = set()
        """The topics of which a find has ended, so that this node's offers are known."""
        self._finds: dict[str, FindRequest] = {}
        self._searched: dict[str, float] = {}
        """The loop time until which a topic needs no search of `BUSY_SECONDS`."""
        peer.link.on_lost(self._searched.clear)
        dropped = peer.traces.dropped["caller"]
        peer.traces.dropped["caller"] = lambda: dropped() + self.budget.dropped

    async def follow(self, contract: Contract) -> None:
        """Subscribe to the announcements of the major version of `contract`.

        Raises:
            HearthNetError: `partition` if that fails.
        """
        known = self.tables.get(contract.id)
        if known is not None and known.contract.schema_hash == contract.schema_hash:
            return
        topic = subjects.topic(contract.capability)
        if topic not in self._followed:
            self._followed.add(topic)
            try:
                announcements = subjects.announcements_of(contract.capability)
                await self._peer.link.subscribe(announcements, self._on_announcement)
                at_home = subjects.announce_at_home(self._peer.node_id, contract.capability)
                await self._peer.link.subscribe(at_home, self._on_announcement_at_home)
            except BaseException:
                self._followed.discard(topic)
                raise
        self.tables[contract.id] = self.registry.table(contract)

    def has_asked(self, contract: Contract) -> bool:
        """Return whether this node's offers of the capability are known, by a find that has ended."""
        return subjects.topic(contract.capability) in self._asked

    async def find(
        self,
        contract: Contract,
        enough: Callable[[], bool],
        content: Callable[[], bool],
        *,
        node: str = "",
        instance: str = "",
    ) -> bool:
        """Send a find; return when there is `enough`, or no more answers can be expected.

        While `content` is false, busy providers are waited for, up to `BUSY_SECONDS`: for `node` or its
        process `instance` if named, otherwise unless that was done recently. Returns whether there are
        subscribers and none has answered.

        Raises:
            HearthNetError: `partition` if the connection breaks.
        """
        topic, clock = subjects.topic(contract.capability), asyncio.get_running_loop().time
        hurried = not node and clock() < self._searched.get(topic, 0)
        finding = await self._join_find(topic)
        await finding.wait(
            enough, lambda: hurried or content() or bool(node and finding.has_answered(node, instance))
        )
        if finding.exhausted:
            self._searched[topic] = clock() + _SEARCHED_SECONDS
        self._asked.add(topic)
        return finding.is_unanswered

    async def listed(
        self,
        wanted: str,
        suits: Callable[[OfferView], bool] | None = None,
        *,
        once: str = "",
        is_hidden_too: bool = False,
    ) -> list[OfferView]:
        """Return every offer in the mesh, or those of one topic, by a new find: not for calls.

        While none `suits`, busy providers are waited for, up to `BUSY_SECONDS`, unless that was done in vain
        recently for the same `once`. `is_hidden_too`: with the offers that lists do not show.
        """
        registry, clock = Registry(self.registry.own), asyncio.get_running_loop().time
        hurried = suits is None or clock() < self._searched.get(once, 0)

        def content() -> bool:
            return hurried or suits is None or any(map(suits, registry.all_offers(steady_ms())))

        finding = await self._send_find(wanted, self._new_find(registry, wanted, lists=True))
        await finding.wait(lambda: False, lambda: not finding.is_unanswered and content())
        if once and finding.exhausted:
            self._searched[once] = clock() + _SEARCHED_SECONDS
        return [view for view in registry.all_offers(steady_ms()) if is_hidden_too or view.is_shown]

    async def _join_find(self, topic: str) -> FindRequest:
        """Send a find for `topic`, or join one in progress: a thousand calls at once are one find."""
        finding = self._finds.get(topic)
        # Not those that have an answer: it may be older than what the caller knows.
        if finding is None or finding.over or not finding.is_unanswered:
            finding = self._finds[topic] = self._new_find(self.registry, topic, lists=False)
            await self._send_find(topic, finding)
        return finding

    def _new_find(self, registry: Registry, wanted: str, *, lists: bool) -> FindRequest:
        def is_one_silent(answered: set[str]) -> bool:
            return not answered.issuperset(_offering(self._peer, wanted))

        return FindRequest(self._peer.node_id, registry, is_one_silent, lists=lists)

    async def _send_find(self, wanted: str, finding: FindRequest) -> FindRequest:
        peer = self._peer
        header = peer.sender.header("find", ids.new_ulid(), capability=wanted)
        peer.replies.expect(header.id, finding)
        finding.forget = partial(peer.replies.forget, header.id)
        try:
            nobody = subjects.reply(peer.node_id, peer.node_id, peer.instance, header.id)
            data = frames.signed(header, b"", peer.identity)
            await peer.link.publish(subjects.find(peer.node_id, wanted), data, reply=nobody)
        except BaseException:
            finding.on_lost()
            raise
        return finding

    def _on_announcement(self, subject: str, data: bytes, absent: bool) -> None:
        if not self.budget.admits(subject, len(data)):
            return
        try:
            self._read_announcement(subject, data)
        except (FrameError, HearthNetError) as error:
            _drop_log.write("dropped an announcement: %s", error)

    def _read_announcement(self, subject: str, data: bytes) -> None:
        _, sender = subjects.open_sender(subject)
        if not self._peer.membership.is_member(sender):
            raise FrameError("the announcement is not a member's")
        self._read_notice(frames.read_signed(data, sender, self._peer.verified))

    def _on_announcement_at_home(self, subject: str, data: bytes, absent: bool) -> None:
        own = self._peer.node_id
        try:
            frame = frames.opened(data, self._peer.sender.keys.of(own), own)
            if frame.header.to != own:
                raise FrameError("the announcement is not for this node")
            self._read_notice(frame)
        except (FrameError, HearthNetError) as error:
            _log.warning("dropped an announcement: %s", error)

    def _read_notice(self, frame: Frame) -> None:
        sender = frame.header.sender
        if not self._is_acceptable(frame.header):
            raise FrameError("the announcement is not for this community, or old, or seen before")
        notice = offers.decode(frame.body)
        self.registry.update(sender, notice.offers, withdrawn=notice.withdrawn, heard_ms=steady_ms())
        finding = self._finds.get(frame.header.capability)
        if finding is not None:
            finding.wake()

    def _is_acceptable(self, header: Header) -> bool:
        return (
            header.kind in SUBJECT_KINDS["adv"]
            and header.community == self._peer.community
            and self._peer.replay.check(header.sender, header.id, header.time, now_ms()) == "fresh"
        )
