"""Topics: what sockets follow, with the sources of their events (docs/gateway.md, "WebSocket").

    mesh         offers: appeared, changed, gone
    market.post  posts: posted, ended
    runs         the client's runs: waiting, changed, gone

A topic has one source for all its followers, and bounded memory. A source looks at regular intervals and
reports differences; a failed look is reported once (`notice`) and repeated at the next interval.

Frames are numbered by the topic, so that each is encoded once for all followers. The numbers begin with the
time in milliseconds at which the topic was first followed: a number from an earlier process of the gateway
is older than all kept frames, and its client gets a snapshot.

See: docs/protocol/gateway.md#topics.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.gateway.api.capabilities import visible
from hearthnet.gateway.auth.clients import Client
from hearthnet.gateway.socket import frames
from hearthnet.gateway.socket.channel import ChannelReader, Frame
from hearthnet.gateway.socket.protocol import SNAPSHOT
from hearthnet.trust.authorization.token import is_owner

if TYPE_CHECKING:
    from hearthnet.gateway.context import Gateway

RING_FRAMES: Final = 256
"""Frames of a topic that are kept for clients that come back."""
RETRY_SECONDS: Final = 5.0
_log = logging.getLogger(__name__)
Publish = Callable[[str, dict[str, Any]], None]


class Ring:
    """The newest frames of a topic, in order and without gaps. Pure."""

    def __init__(self, first: int, most: int = RING_FRAMES) -> None:
        """Create an empty ring; `first` is the number before the first frame."""
        self.seq = first
        self._frames: deque[Frame] = deque(maxlen=most)

    def put(self, event: str, data: dict[str, Any]) -> None:
        """Add the next frame, which may replace the oldest one."""
        self.seq += 1
        self._frames.append(Frame(self.seq, event, frames.write(event, data, self.seq)))

    def after(self, seq: int, most: int) -> list[Frame] | None:
        """Return up to `most` frames after `seq`; None if those are no longer kept."""
        oldest = self.seq - len(self._frames)
        if not oldest <= seq <= self.seq:
            return None
        first = seq - oldest
        return [self._frames[place] for place in range(first, min(first + most, len(self._frames)))]


class Topic:
    """One topic, or that of one principal."""

    def __init__(self, name: str, feed: WatchedFeed) -> None:
        self.name = name
        self.left_at: float | None = None
        """The time at which the last reader left; None while there is one."""
        self._feed = feed
        self._ring = Ring(now_ms())
        self._readers: set[ChannelReader] = set()
        self._known = False
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._readers)

    @property
    def seq(self) -> int:
        """The number of the newest frame."""
        return self._ring.seq

    def attach(self, reader: ChannelReader) -> None:
        """Add `reader`; the first one starts the source."""
        self._readers.add(reader)
        self.left_at = None
        if self._task is None:
            self._task = asyncio.create_task(self._follow(), name=f"topic {self.name}")
        reader.wake()

    def detach(self, reader: ChannelReader, now: float) -> None:
        """Remove `reader`; the last one stops the source."""
        self._readers.discard(reader)
        if not self._readers and self.left_at is None:
            self.left_at = now
            self._stop()

    def take(self, after: int, most: int) -> list[Frame]:
        """Return up to `most` frames after `after`, or a snapshot where they are not kept."""
        if not self._known or most <= 0:
            return []
        found = self._ring.after(after, most)
        if found is not None:
            return found
        seq = self.seq
        return [Frame(seq, SNAPSHOT, frames.write(SNAPSHOT, self._feed.state(), seq))]

    def acknowledge(self, upto: int) -> None:
        """Do nothing: one reader's receipt does not affect the others."""

    def put(self, event: str, data: dict[str, Any]) -> None:
        """Publish an event to all followers."""
        self._ring.put(event, data)
        self._wake()

    async def close(self) -> None:
        """Stop the source."""
        task = self._task
        self._stop()
        if task is not None:
            await asyncio.wait({task})

    def _stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    def _learned(self) -> None:
        self._known = True
        self._wake()

    def _wake(self) -> None:
        for reader in self._readers:
            reader.wake()

    async def _follow(self) -> None:
        while True:
            try:
                await self._feed.follow(self.put, self._learned)
            except Exception:
                _log.exception("the source of the topic %s broke, and is followed anew", self.name)
            await asyncio.sleep(RETRY_SECONDS)


LOOK_SECONDS: Final[Mapping[str, float]] = {"mesh": 3.0, "market.post": 2.0, "runs": 1.0}
MOST_POSTS: Final = 500
_LIST: Final = "market.list@1.0"
_ASKS: Final = {"mesh": "mesh.search@1.0", "market.post": _LIST}
"""For topics that are equal for all clients: the capability that a follower must be allowed to call."""


class WatchedFeed:
    """The source of a topic, which looks at regular intervals."""

    def __init__(self, look: DiffLook | MarketLook, seconds: float) -> None:
        self._look = look
        self._seconds = seconds
        self._problem: dict[str, Any] = {}
        self._begun = False

    def state(self) -> dict[str, Any]:
        """Return the data of a snapshot: the last state, with `problem` where the last look failed."""
        return {**self._look.state(), **({"problem": self._problem} if self._problem else {})}

    async def follow(self, publish: Publish, known: Callable[[], None]) -> None:
        """Publish events until it is cancelled; call `known` when `state` is first complete.

        The first look of all reports no changes; a first look after a time without followers does.
        """
        await self._once(publish if self._begun else lambda _event, _data: None)
        self._begun = True
        known()
        while True:
            await asyncio.sleep(self._seconds)
            await self._once(publish)

    async def _once(self, publish: Publish) -> None:
        try:
            found = await self._look.look()
        except HearthNetError as error:
            if error.code != self._problem.get("error"):
                self._problem = error.to_body()
                publish("notice", self._problem)
            return
        self._problem = {}
        for event, data in found:
            publish(event, data)


class DiffLook:
    """Items by key, and what has changed since the previous look: `appeared`, `changed`, `gone`."""

    def __init__(self, name: str, items: Callable[[], Awaitable[dict[str, dict[str, Any]]]]) -> None:
        """Create the look; `name` is the member of the state that has the items, `items` reads them."""
        self._name = name
        self._items = items
        self._things: dict[str, dict[str, Any]] = {}

    async def look(self) -> list[tuple[str, dict[str, Any]]]:
        """Read all present items, and return the changes."""
        now = await self._items()
        before, self._things = self._things, now
        ended = [("gone", thing) for key, thing in before.items() if key not in now]
        begun = [
            ("changed" if key in before else "appeared", thing)
            for key, thing in now.items()
            if before.get(key) != thing
        ]
        return ended + begun

    def state(self) -> dict[str, Any]:
        """Return all items."""
        return {self._name: list(self._things.values())}


_OF_OFFER: Final = [
    "instance",
    "capability",
    "params",
    "trust",
    "service",
    "version",
    "in_flight",
    "max_concurrent",
]


def offer_of(view: OfferView) -> dict[str, Any]:
    """Return the public data of an offer; `health` shows whether it is at its limit."""
    offer = view.offer
    health = "full" if offer.in_flight >= offer.max_concurrent > 0 else "well"
    return {"node": view.node, **{name: getattr(offer, name) for name in _OF_OFFER}, "health": health}


class MarketLook:
    """The posts of the market, as the followers may read them."""

    def __init__(self, ask: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]) -> None:
        """Create the look; `ask` calls market.list with an input and returns its output."""
        self._ask = ask
        self._seen = 0
        self._posts: dict[str, dict[str, Any]] = {}

    async def look(self) -> list[tuple[str, dict[str, Any]]]:
        """Read the posts that were published or ended since the previous look."""
        # Shared by all clients: whom one of them has muted, its page leaves out itself.
        found = await self._ask({"since_lamport": self._seen, "limit": MOST_POSTS, "muted": True})
        if found["max_lamport"] < self._seen:
            # The log was replaced: start again.
            self._seen, self._posts = 0, {}
            return [("reset", {}), *await self.look()]
        news: list[tuple[str, dict[str, Any]]] = []
        for post in found["posts"]:
            event = "changed" if post["event_id"] in self._posts else "posted"
            if self._posts.get(post["event_id"]) != post:
                self._posts[post["event_id"]] = post
                news.append((event, post))
        ended = [event_id for event_id in found.get("removed", []) if self._posts.pop(event_id, None)]
        self._seen = found["max_lamport"]
        how = {end["event_id"]: end for end in found.get("ended", [])}
        return news + [("ended", how.get(event_id, {"event_id": event_id})) for event_id in ended]

    def state(self) -> dict[str, Any]:
        """Return the current posts."""
        return {"posts": list(self._posts.values())}


class Readers:
    """The clients under the tokens of which a shared topic is read."""

    def __init__(self) -> None:
        self._clients: dict[str, Client] = {}
        self._sockets: Counter[str] = Counter()

    def add(self, client: Client) -> None:
        """Add a socket of `client`."""
        self._clients[client.id] = client
        self._sockets[client.id] += 1

    def remove(self, client: Client) -> None:
        """Remove a socket of `client`; after the last one its token is no longer used."""
        self._sockets[client.id] -= 1
        if self._sockets[client.id] <= 0:
            del self._sockets[client.id]
            self._clients.pop(client.id, None)

    async def ask(self, gateway: Gateway, capability: str, given: dict[str, Any]) -> dict[str, Any]:
        """Return the output of a call that one of the clients may make.

        Raises the last refusal if none of them may.
        """
        refused = HearthNetError("unauthorized", f"nobody who follows may call {capability}")
        for client in reversed(list(self._clients.values())):
            try:
                token = gateway.clients.token(client)
                reply = await gateway.bus.call(capability, {"params": {}, "input": given}, token=token)
            except HearthNetError as error:
                if not error.code.startswith(("token", "unauthorized", "revoked")):
                    raise
                refused = error
                del self._clients[client.id]
            else:
                output: dict[str, Any] = reply.output
                return output
        raise refused


class Feeds:
    """The feeds of one gateway."""

    def __init__(self, gateway: Gateway, look_seconds: Mapping[str, float] = LOOK_SECONDS) -> None:
        self._gateway = gateway
        self._seconds = look_seconds
        self._market = Readers()

    def owner_of(self, topic: str, client: Client) -> str:
        """Return the owner of a topic: a principal, or empty for a topic that is equal for all guests.

        The owner of the node has a topic `mesh` with the offers to the home alone.

        Raises:
            HearthNetError: `token_scope_insufficient` if the client's scope does not cover the topic.
        """
        asks = _ASKS.get(topic)
        if asks is None:
            return client.principal
        client.check_covers(asks)
        if topic == "market.post":
            self._market.add(client)
        return client.principal if topic == "mesh" and self._is_owner(client) else ""

    def left(self, topic: str, client: Client) -> None:
        """Note that a socket of `client` no longer follows `topic`."""
        if topic == "market.post":
            self._market.remove(client)

    def open(self, topic: str, client: Client) -> WatchedFeed:
        """Return the feed of `topic`, for the client's principal where it is not shared."""
        gateway, seconds = self._gateway, self._seconds[topic]
        own = gateway.bus.peer.node_id
        shown_to = client.principal if self._is_owner(client) else ""

        async def offers() -> dict[str, dict[str, Any]]:
            views = visible(await gateway.bus.offers(), shown_to, client.scope, own)
            return {repr(view.key): offer_of(view) for view in views}

        async def runs() -> dict[str, dict[str, Any]]:
            return {str(run["run"]): run for run in await gateway.runs.listing(client)}

        if topic == "market.post":
            return WatchedFeed(MarketLook(lambda given: self._market.ask(gateway, _LIST, given)), seconds)
        look = DiffLook("offers", offers) if topic == "mesh" else DiffLook("runs", runs)
        return WatchedFeed(look, seconds)

    def _is_owner(self, client: Client) -> bool:
        return is_owner(client.principal, self._gateway.bus.peer.node_id)
