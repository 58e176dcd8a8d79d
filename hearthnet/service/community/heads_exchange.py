"""Exchange of what nodes missed, by comparison of heads: for the roster and for each topic of the event log.

    when                                              action
    every 20 s, on change, after a reconnection,
    and when a link to another home came about        publish this node's heads to all nodes, unless enough
                                                      others have published equal ones since
    heads of two nodes differ                         the node with fewer events fetches from the other
    a node that is behind announces its heads         one of those that are ahead announces its own

So what reaches a home does not grow with the community (as in RFC 6206). A node that is silent still
announces now and then, since one that announces events and never gives them could keep it silent for good.

The caller does the fetching.

See: docs/protocol/community.md#heads, docs/decisions/0043, docs/decisions/0235.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

import msgspec

from hearthnet.bus.session import gossip_frames
from hearthnet.bus.session.gossip_frames import LINKED, GossipReader
from hearthnet.bus.session.session import Session
from hearthnet.core.canonical_json import read_json
from hearthnet.core.errors import HearthNetError
from hearthnet.core.ids import short_id
from hearthnet.core.rationed_log import RationedLog
from hearthnet.core.tasks import TaskSet
from hearthnet.protocol import subjects
from hearthnet.protocol.frame import FrameError
from hearthnet.service.community.peer_heads import Comparable, Neighbours

_log = logging.getLogger(__name__)
ANNOUNCE_SECONDS: Final = 20.0
_LEAST_SECONDS: Final = 0.5
"""Pause before each announcement but those after a fetch, to bound their rate; before the first one it lets
offers go out first.
"""
_ENOUGH: Final = 3
"""Nodes that have announced equal heads, after which this one need not."""
_SPREAD_SECONDS: Final = 0.01
"""Longest random delay before an announcement, for each member beyond the first 50: those who hear enough
others in it are silent.
"""
_MOST_SPREAD_SECONDS: Final = 5.0
_FEW: Final = 50
_JITTER_SECONDS: Final = 0.25
"""Longest random delay before a fetch: nodes that are behind do not all fetch at once, and some receive the
events from their neighbours first.
"""
_ANSWER_SECONDS: Final = 1.0
"""Time within which one of the nodes that are ahead announces its heads to a node that is behind."""
_ANSWER_AGAIN_SECONDS: Final = 5.0

Extent = TypeVar("Extent", bound=Comparable)


class HeadsExchange(Generic[Extent]):
    """Announces the heads that `ours` returns as `event_type`, and fetches from nodes that hold more.

    `fetch` fetches from one node, and returns whether anything was new. `compared` is called with each other
    node and its heads.
    """

    def __init__(
        self,
        peer: Session,
        event_type: str,
        reader: GossipReader,
        decoder: msgspec.json.Decoder[Extent],
        ours: Callable[[], Extent],
        fetch: Callable[[str], Awaitable[bool]],
        compared: Callable[[str, Extent], None] = lambda node, heads: None,
    ) -> None:
        self._peer = peer
        self._event_type = event_type
        self._reader = reader
        self._decoder = decoder
        self._ours = ours
        self._fetch_from = fetch
        self._compared = compared
        self._tasks = TaskSet()
        self._drop_log = RationedLog(_log, logging.INFO)
        self._clock = asyncio.get_running_loop().time
        self._announcing = asyncio.Event()
        self._equals: set[str] = set()
        """The nodes that have announced equal heads since there was last occasion to announce."""
        self._silent_until = self._clock() + self._longest_silence() * random.random()
        self._delay = 0.0
        self._fetched = asyncio.Event()
        self._asking = asyncio.Event()
        self._neighbours: Neighbours[Extent] = Neighbours()
        self._answering: asyncio.TimerHandle | None = None
        self._answer_after = 0.0

    async def open(self) -> None:
        """Subscribe to heads, and start to announce and to fetch."""
        await self._peer.link.subscribe(subjects.events_of(self._event_type), self._on_heads)
        await self._peer.link.subscribe(subjects.event(self._peer.node_id, LINKED), self._on_linked)
        self._peer.link.on_restored(self._back)
        for work in (self._announce, self._ask):
            self._tasks.keep(work, work.__name__)

    async def close(self) -> None:
        """Stop announcing and fetching."""
        self._answered()
        await self._tasks.close()

    def announce(self) -> None:
        """Announce this node's heads soon: they have changed, or a node may not have them."""
        self._occasion(self._spread())

    def _occasion(self, spread: float = 0.0) -> None:
        """Announce within `spread` seconds, unless enough others do from now on."""
        self._equals.clear()
        self._delay = random.uniform(0, spread)
        self._announcing.set()

    def ask(self, node: str) -> None:
        """Fetch from `node`, which has shown by its full heads that it holds events that are not held here.

        Its digest need not say so: of two that differ the one with fewer events asks, and may find that it
        does not take in the events that the other has more.
        """
        self._neighbours.holds_more(node, self._clock())
        self._asking.set()

    async def _back(self) -> None:
        self._occasion()

    def _on_linked(self, subject: str, data: bytes, absent: bool) -> None:
        """Announce at once: homes behind the link have not heard this node's heads for as long as it was cut.

        The server lets this node alone publish here, so the frame is not opened.
        """
        self._occasion()

    async def _announce(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LEAST_SECONDS + self._delay):
                    await self._fetched.wait()
            self._fetched.clear()
            self._announcing.clear()
            if len(self._equals) < _ENOUGH or self._clock() >= self._silent_until:
                await self._publish()
            self._equals.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ANNOUNCE_SECONDS * random.uniform(0.8, 1.2)):
                    await self._announcing.wait()

    def _spread(self) -> float:
        """Return the longest random delay before an announcement; longer where more nodes may announce."""
        beyond = len(self._peer.roster.members) - _FEW
        return min(_MOST_SPREAD_SECONDS, max(0.0, beyond * _SPREAD_SECONDS))

    def _longest_silence(self) -> float:
        """Return the seconds after which a node announces whatever it hears: all together once a second."""
        return max(ANNOUNCE_SECONDS, float(len(self._peer.roster.members)))

    async def _publish(self) -> None:
        self._silent_until = self._clock() + self._longest_silence() * random.uniform(0.8, 1.2)
        with contextlib.suppress(HearthNetError):
            body = msgspec.json.encode(self._ours())
            await gossip_frames.publish(self._peer.sender, self._event_type, body)

    def _on_heads(self, subject: str, data: bytes, absent: bool) -> None:
        if not self._reader.budget.admits(subject, len(data)):
            return
        try:
            frame = self._reader.open(subject, data)
            heads = read_json(frame.body, self._decoder)
        except (FrameError, HearthNetError) as error:
            self._drop_log.write("dropped heads: %s", error)
            return
        if frame.header.sender == self._peer.node_id:
            return
        self._neighbours.record(frame.header.sender, heads, self._clock())
        ours = self._ours()
        if ours.is_behind(heads):
            self._asking.set()
        elif heads.is_behind(ours):
            self._answer_soon()
        else:
            self._answered()
            self._equals.add(frame.header.sender)
        self._compared(frame.header.sender, heads)

    def _answer_soon(self) -> None:
        """Announce heads after a random delay, unless another node does so first.

        Soon after an answer it is later: who comes then has not heard that one.
        """
        if self._answering is None:
            delay = random.uniform(0, max(_ANSWER_SECONDS, self._spread()))
            delay = max(delay, self._answer_after - self._clock())
            self._answering = asyncio.get_running_loop().call_later(delay, self._answer)

    def _answer(self) -> None:
        self._answering = None
        self._answer_after = self._clock() + _ANSWER_AGAIN_SECONDS
        self._occasion()

    def _answered(self) -> None:
        """Cancel the delayed announcement: another node has announced equal heads."""
        if self._answering is not None:
            self._answering.cancel()
            self._answering = None

    async def _ask(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._neighbours.pause(self._ours(), self._clock())):
                    await self._asking.wait()
            self._asking.clear()
            await asyncio.sleep(random.uniform(0, _JITTER_SECONDS))
            node = self._neighbours.due(self._ours(), self._clock())
            if node is not None:
                await self._fetch(node)

    async def _fetch(self, node: str) -> None:
        try:
            anything = self._peer.membership.is_member(node) and await self._fetch_from(node)
        except HearthNetError as error:
            self._neighbours.silent(node, self._clock())
            _log.warning("%s knows more, but does not say it: %s", short_id(node), error)
        else:
            self._neighbours.gave(node, anything, self._clock())
            if anything:
                self.announce()
                # Nodes that exchange much in turn, as after a long cut, would wait for the pause each time.
                if not self._spread():
                    self._fetched.set()
