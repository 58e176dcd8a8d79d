"""The sources of the topics (docs/gateway.md, "WebSocket").

Each source looks at regular intervals and reports differences. One look serves all followers.

    mesh         offers: appeared, changed, gone
    market.post  posts: posted, ended
    runs         the client's runs: waiting, changed, gone

A failed look is reported once (`notice`) and repeated at the next interval.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.auth.clients import Client
from hearthnet.gateway.socket.topic import Feed, Publish

if TYPE_CHECKING:
    from hearthnet.gateway.context import Gateway

LOOK_SECONDS: Final[Mapping[str, float]] = {"mesh": 3.0, "market.post": 2.0, "runs": 1.0}
MOST_POSTS: Final = 500
_LIST: Final = "market.list@1.0"
_ASKS: Final = {"mesh": "mesh.search@1.0", "market.post": _LIST}
"""For topics that are equal for all clients: the capability that a follower must be allowed to call."""


class WatchedFeed:
    """A feed that looks at regular intervals."""

    def __init__(self, look: DiffLook | MarketLook, seconds: float) -> None:
        self._look = look
        self._seconds = seconds
        self._problem: dict[str, Any] = {}
        self._begun = False

    def state(self) -> dict[str, Any]:
        """Return the last state, with `problem` where the last look failed."""
        return {**self._look.state(), **({"problem": self._problem} if self._problem else {})}

    async def follow(self, publish: Publish, known: Callable[[], None]) -> None:
        """Implement `Feed.follow`.

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


def offer_of(view: OfferView) -> dict[str, Any]:
    """Return the public data of an offer; `health` shows whether it is at its limit."""
    offer = view.offer
    return {
        "node": view.node,
        "instance": offer.instance,
        "capability": offer.capability,
        "params": offer.params,
        "trust": offer.trust,
        "service": offer.service,
        "version": offer.version,
        "in_flight": offer.in_flight,
        "max_concurrent": offer.max_concurrent,
        "health": "full" if offer.in_flight >= offer.max_concurrent > 0 else "well",
    }


class MarketLook:
    """The posts of the market, as the followers may read them."""

    def __init__(self, ask: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]) -> None:
        """Create the look; `ask` calls market.list with an input and returns its output."""
        self._ask = ask
        self._seen = 0
        self._posts: dict[str, dict[str, Any]] = {}

    async def look(self) -> list[tuple[str, dict[str, Any]]]:
        """Read the posts that were published or ended since the previous look."""
        found = await self._ask({"since_lamport": self._seen, "limit": MOST_POSTS})
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
    """The clients under whose tokens a shared topic is read."""

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

    def whose(self, topic: str, client: Client) -> str:
        """Return the owner of a topic: a principal, or empty for a topic that is equal for all.

        Raises:
            HearthNetError: `token_scope_insufficient` if the client's scope does not cover the topic.
        """
        asks = _ASKS.get(topic)
        if asks is None:
            return client.principal
        if not client.scope.covers(parse_capability(asks)):
            raise HearthNetError("token_scope_insufficient", f"what you may do here does not cover {asks}")
        if topic == "market.post":
            self._market.add(client)
        return ""

    def left(self, topic: str, client: Client) -> None:
        """Note that a socket of `client` no longer follows `topic`."""
        if topic == "market.post":
            self._market.remove(client)

    def open(self, topic: str, client: Client) -> Feed:
        """Return the feed of `topic`, for the client's principal where it is not shared."""
        gateway, seconds = self._gateway, self._seconds[topic]

        async def offers() -> dict[str, dict[str, Any]]:
            return {repr(view.key): offer_of(view) for view in await gateway.bus.offers()}

        async def runs() -> dict[str, dict[str, Any]]:
            return {str(run["run"]): run for run in await gateway.runs.listing(client)}

        if topic == "market.post":
            return WatchedFeed(MarketLook(lambda given: self._market.ask(gateway, _LIST, given)), seconds)
        look = DiffLook("offers", offers) if topic == "mesh" else DiffLook("runs", runs)
        return WatchedFeed(look, seconds)
