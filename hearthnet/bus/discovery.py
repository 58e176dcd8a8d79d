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

from hearthnet import ids
from hearthnet.bus.registry import OfferView, Registry
from hearthnet.bus.retries import Retries
from hearthnet.bus.sticky import Sticky
from hearthnet.bus.table import Table
from hearthnet.contracts import Contract
from hearthnet.errors import HearthNetError
from hearthnet.node_state import read_node_state
from hearthnet.times import now_ms, steady_ms
from hearthnet.types import parse_capability
from hearthnet.wire import frame as frames
from hearthnet.wire import offer as offers
from hearthnet.wire import subjects
from hearthnet.wire.frame import Frame, FrameError
from hearthnet.wire.header import SUBJECT_KINDS, Header

if TYPE_CHECKING:
    from hearthnet.bus.peer import Peer

_log = logging.getLogger(__name__)
NOBODY_SECONDS: Final = 0.5
"""Wait of a find without an answer, unless the server reports before that there are no subscribers."""
GRACE_SECONDS: Final = 0.08
"""Wait after the last answer: the jitter of other providers and a way back."""
LATE_SECONDS: Final = 0.05
"""A timer later than this was delayed by work of this process, as unread answers may be."""

BUSY_SECONDS: Final = 2.0
"""Maximum wait of a find: for further answers, for a service of this node that runs and has not answered, and
for the node or process named in a call.
"""
_BUSY_LOOK_SECONDS: Final = 0.02


class Finding:
    """One find in progress, shared by all who wait for its answers; detects its end.

    `silent` takes the services that have answered, and returns whether a further one of this node runs: that
    one is busy (loading a model), and must not count as offering nothing.
    """

    def __init__(self, own: str, registry: Registry, silent: Callable[[set[str]], bool]) -> None:
        self._own = own
        self._registry = registry
        self._silent = silent
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._services: set[str] = set()
        self._named: set[tuple[str, str]] = set()
        self._senders: set[tuple[str, str]] = set()
        """The nodes that have answered, each with an empty instance and with those of its offers."""
        self._answered = False
        self._lost = False
        self._heard = self._loop.time()
        self._patience = self._heard + BUSY_SECONDS
        self.over = False
        self.forget: Callable[[], None] = _nothing
        self._end_in(NOBODY_SECONDS)

    def on_frame(self, frame: Frame) -> None:
        """Add an answer: the offers of one process."""
        sender = frame.header.sender
        try:
            if frame.header.kind != "offer":
                raise FrameError("not an offer")
            found = offers.decode(frame.body).offers
            self._registry.update(sender, found, withdrawn=False, heard_ms=steady_ms())
        except (FrameError, HearthNetError) as error:
            _log.warning("dropped an offer: %s", error)
            return
        self._services |= {record.service for record in found}
        self._senders |= {(sender, ""), *((sender, record.instance) for record in found)}
        self._heard = self._loop.time()
        if not self._answered:
            self._answered = True
            self._timer.cancel()
            self._end_in(GRACE_SECONDS)
        self._wake()

    def expect(self, node: str, instance: str) -> None:
        """Wait for an answer of `node`, and of its process `instance` unless that is empty."""
        self._named.add((node, instance))

    def on_nobody(self, node: str) -> None:
        """End the find, since the server reports that there are no subscribers.

        A report in the name of another node does not count: finds are public, and any node may answer.
        """
        if node == self._own:
            self.end()

    def on_lost(self) -> None:
        """End the find, since the connection and its answers are lost."""
        self._lost = True
        self.end()

    def end(self) -> None:
        """Accept no more answers; a later caller sends a new find."""
        self.over = True
        self._timer.cancel()
        self.forget()
        self._wake()

    async def wait(self, enough: Callable[[], bool]) -> None:
        """Wait until there is `enough`, or no more answers can be expected.

        Raises:
            HearthNetError: `partition` if the connection broke, so that nothing is known.
        """
        while not self.over and not (self._answered and enough()):
            await self._changed.wait()
        if self._lost:
            raise HearthNetError("partition", "the connection to the server broke")

    def _end_in(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._due, self._loop.time() + seconds, seconds)

    def _due(self, at: float, seconds: float) -> None:
        """End the find, unless an answer may be late because this process or a service is busy."""
        now = self._loop.time()
        if now - at > LATE_SECONDS:
            self._end_in(seconds)
        elif now < self._patience and (
            self._named - self._senders or self._more_come(now) or self._silent(self._services)
        ):
            self._end_in(_BUSY_LOOK_SECONDS)
        else:
            self.end()

    def _more_come(self, now: float) -> bool:
        """Return whether the last answer is recent enough for another to follow."""
        return self._answered and now < self._heard + GRACE_SECONDS

    def _wake(self) -> None:
        woken, self._changed = self._changed, asyncio.Event()
        woken.set()


def _nothing() -> None:
    """Do nothing: before the find is sent there is no waiter to remove."""


def _offering(peer: Peer, wanted: str) -> set[str]:
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

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.registry = Registry(peer.node_id)
        self.tables: dict[str, Table] = {}
        """The offers that suit each followed contract, by its id."""
        self.sticky = Sticky()
        self.retries = Retries(steady_ms())
        self._followed: set[str] = set()
        self._findings: dict[str, Finding] = {}

    async def follow(self, contract: Contract) -> None:
        """Subscribe to the announcements of the major version of `contract`.

        Raises:
            HearthNetError: `partition` if that fails.
        """
        if contract.id in self.tables:
            return
        topic = subjects.topic(contract.capability)
        if topic not in self._followed:
            self._followed.add(topic)
            try:
                announcements = subjects.announcements_of(contract.capability)
                await self._peer.link.subscribe(announcements, self._on_announcement)
            except BaseException:
                self._followed.discard(topic)
                raise
        self.tables[contract.id] = self.registry.table(contract)

    async def find(
        self, contract: Contract, enough: Callable[[], bool], *, node: str = "", instance: str = ""
    ) -> None:
        """Send a find; return when there is `enough`, or no more answers can be expected.

        An answer of `node`, and of its process `instance`, is waited for even if others are faster: on a busy
        machine a named provider would otherwise count as missing.

        Raises:
            HearthNetError: `partition` if the connection breaks.
        """
        finding = await self._find(subjects.topic(contract.capability))
        if node:
            finding.expect(node, instance)
        await finding.wait(enough)

    async def everything(self) -> list[OfferView]:
        """Return every offer in the mesh by a new find: for listing, not for calling."""
        heard = Registry()
        finding = await self._ask(subjects.EVERYTHING, self._finding(heard, subjects.EVERYTHING))
        await finding.wait(lambda: False)
        return heard.everything(steady_ms())

    async def _find(self, topic: str) -> Finding:
        """Send a find for `topic`, or join one in progress: a thousand calls at once are one find."""
        finding = self._findings.get(topic)
        if finding is None or finding.over:
            finding = self._findings[topic] = self._finding(self.registry, topic)
            await self._ask(topic, finding)
        return finding

    def _finding(self, registry: Registry, wanted: str) -> Finding:
        return Finding(self._peer.node_id, registry, self._silent_of(wanted))

    async def _ask(self, wanted: str, finding: Finding) -> Finding:
        peer = self._peer
        header = peer.header("find", ids.new_ulid(), capability=wanted)
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

    def _silent_of(self, wanted: str) -> Callable[[set[str]], bool]:
        """Return a check for services of this node that offer `wanted` beside the given ones."""
        return lambda answered: not answered.issuperset(_offering(self._peer, wanted))

    def _on_announcement(self, subject: str, data: bytes, absent: bool) -> None:
        try:
            self._take(subject, data)
        except (FrameError, HearthNetError) as error:
            _log.warning("dropped an announcement: %s", error)

    def _take(self, subject: str, data: bytes) -> None:
        _, sender = subjects.open_sender(subject)
        if not self._peer.membership.is_member(sender):
            raise FrameError("the announcement is not a member's")
        frame = frames.read_signed(data, sender, self._peer.proved)
        if not self._acceptable(frame.header):
            raise FrameError("the announcement is not for this community, or old, or seen before")
        notice = offers.decode(frame.body)
        self.registry.update(sender, notice.offers, withdrawn=notice.withdrawn, heard_ms=steady_ms())

    def _acceptable(self, header: Header) -> bool:
        return (
            header.kind in SUBJECT_KINDS["adv"]
            and header.community == self._peer.community
            and self._peer.replay.judge(header.sender, header.id, header.time, now_ms()) == "fresh"
        )
