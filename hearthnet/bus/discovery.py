"""Interest-based discovery: ask once, then follow.

The first use of a capability asks who offers it and from then on follows its announcements; what this
process keeps grows with what it uses, not with the size of the community.

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
"""How long a find waits where not one answer comes and the server does not say that nobody is there."""
GRACE_SECONDS: Final = 0.08
"""How long it goes on after the last answer: the jitter of the others and a way back."""
LATE_SECONDS: Final = 0.05
"""A timer that is later than this was held up by work, and answers with it."""

BUSY_SECONDS: Final = 2.0
"""How long a find waits at most: for one answer after the other, for a service of the own node that is there
and has not answered, and for the node or process that a call names.
"""
_BUSY_LOOK_SECONDS: Final = 0.02


class Finding:
    """One find on its way: collects answers for all who wait for them, and knows when no more can come.

    `silent` is given the services that have answered, and says whether one of the own node is there that has
    not: such a one is busy (a model that loads), and is not said to offer nothing.
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
        """An answer: the offers of one process."""
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
        """Go on until an answer of `node` has come, and of its process `instance` unless that is empty."""
        self._named.add((node, instance))

    def on_nobody(self, node: str) -> None:
        """The server says that nobody offers it. What others write about a find, which all can read, does not
        count.
        """
        if node == self._own:
            self.end()

    def on_lost(self) -> None:
        """The connection broke, and the answers with it."""
        self._lost = True
        self.end()

    def end(self) -> None:
        """No more answers are taken; who comes later asks anew."""
        self.over = True
        self._timer.cancel()
        self.forget()
        self._wake()

    async def wait(self, enough: Callable[[], bool]) -> None:
        """Returns when there is `enough`, when nobody is there, or when no more answers can be expected.

        Raises `partition` where the connection broke meanwhile: nothing is known then.
        """
        while not self.over and not (self._answered and enough()):
            await self._changed.wait()
        if self._lost:
            raise HearthNetError("partition", "the connection to the server broke")

    def _end_in(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._due, self._loop.time() + seconds, seconds)

    def _due(self, at: float, seconds: float) -> None:
        """The time is up, unless this process was too busy to hear an answer, or a service to give one."""
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
        """Whether the last answer is so young that another may be behind it."""
        return self._answered and now < self._heard + GRACE_SECONDS

    def _wake(self) -> None:
        woken, self._changed = self._changed, asyncio.Event()
        woken.set()


def _nothing() -> None:
    """Before it is asked there is nothing to forget."""


def _offering(peer: Peer, wanted: str) -> set[str]:
    """The services of the own node that are ready and offer `wanted`, as their supervisor knows them."""
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
    """The topic of an offer as a state shows it: `rag.query@1.0 corpus=system`."""
    return subjects.topic(parse_capability(line.partition(" ")[0]))


class Discovery:
    """What this process knows of the mesh, asked for and kept up as it is used."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.registry = Registry(peer.node_id)
        self.tables: dict[str, Table] = {}
        """What suits each contract that is followed, by its id."""
        self.sticky = Sticky()
        self.retries = Retries(steady_ms())
        self._followed: set[str] = set()
        self._findings: dict[str, Finding] = {}

    async def follow(self, contract: Contract) -> None:
        """Hears from now on who offers the major version of `contract`; `partition` where that fails."""
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
        """Asks the mesh who offers it; returns when there is `enough`, or no more answers can be expected.

        An answer of `node`, and of its process `instance`, is waited for where others are faster: on a busy
        machine a named provider would be reported as `not_found`. Raises `partition` where the connection
        breaks.
        """
        finding = await self._find(subjects.topic(contract.capability))
        if node:
            finding.expect(node, instance)
        await finding.wait(enough)

    async def everything(self) -> list[OfferView]:
        """Every offer in the mesh, asked for now: for those who list, not for those who call."""
        heard = Registry()
        finding = await self._ask(subjects.EVERYTHING, self._finding(heard, subjects.EVERYTHING))
        await finding.wait(lambda: False)
        return heard.everything(steady_ms())

    async def _find(self, topic: str) -> Finding:
        """Asks who offers `topic`, or joins those who are asking: a thousand calls at once are one find."""
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
        """Whether a service of the own node offers `wanted` by its node's word, beside those given."""
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
