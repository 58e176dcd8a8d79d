"""The offers this process knows of, and until when.

What is true of an offer for longer than one call is worked out when it changes and not when a call is made:
whether it suits a contract, where it stands among the others (bus/table.py), when it ends.

See: docs/protocol/discovery.md#leases.
"""

from __future__ import annotations

import itertools
import logging
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from heapq import heapify, heappop, heappush
from sys import intern
from typing import Any, Final, Literal

import msgspec

from hearthnet.bus.health import Health
from hearthnet.bus.table import Listing, Table
from hearthnet.contracts import Contract
from hearthnet.ids import short_id
from hearthnet.types import Capability, parse_capability
from hearthnet.wire import subjects
from hearthnet.wire.offer import LIFETIME_MS, OfferRecord

_log = logging.getLogger(__name__)
MOST_OFFERS: Final = 512
"""How many offers of one node are kept; more are not heard."""
MOST_PARAMS: Final = 16_384
"""Characters of JSON that the params of one offer may take."""
_Key = tuple[str, str, str, str]
Event = Literal["appeared", "changed", "gone"]
Watcher = Callable[[Event, "OfferView"], None]


class OfferView(msgspec.Struct, frozen=True):
    """An offer together with the node that signed it."""

    node: str
    capability: Capability
    offer: OfferRecord

    @property
    def params(self) -> dict[str, Any]:
        """What the offer says of itself: model, corpus, languages ..."""
        return self.offer.params

    def is_called(self, name: str) -> bool:
        """Whether `name`, with or without version, is what is offered."""
        return name in (self.capability.name, str(self.capability))

    @property
    def key(self) -> _Key:
        """What makes an offer the same one when it is announced again."""
        offer = self.offer
        return (
            self.node,
            offer.instance,
            offer.capability,
            msgspec.json.encode(offer.params, order="sorted").decode(),
        )


class Registry:
    """Offers by topic (`rag.query.v1`); an expired one counts as gone.

    What a peer says of time and size is bounded here: an offer counts for up to 30 s after it was heard,
    whatever its node takes for the time, and of one node only so many are kept, of so many bytes each.
    `own` is the node whose offers are the near ones. Times are milliseconds of one clock.
    """

    def __init__(self, own: str = "") -> None:
        self._own = own
        self._topics: dict[str, dict[_Key, Listing]] = {}
        self._tables: dict[str, dict[str, Table]] = {}
        self._nodes: dict[str, list[Listing]] = {}
        self._ends: list[tuple[int, int, Listing]] = []
        self._shut: list[tuple[int, int, Listing]] = []
        self._most_ends = MOST_OFFERS
        self._serial = itertools.count()
        self._watchers: dict[str, list[Watcher]] = {}
        self.lines: dict[str, OrderedDict[object, Callable[[], None]]] = {}
        """Who waits for a place that this process's calls take, by topic: the first is told of a free one."""

    def __len__(self) -> int:
        return sum(map(len, self._nodes.values()))

    def update(self, node: str, offers: tuple[OfferRecord, ...], *, withdrawn: bool, heard_ms: int) -> None:
        """Takes what `node` announced. Offers with a malformed capability raise `bad_request`."""
        self.expire(heard_ms)
        known = self._nodes.get(node)
        same = known[0].view.node if known else node
        views = [_view(same, offer) for offer in offers]
        if withdrawn:
            for view in views:
                listing = self._topics.get(subjects.topic(view.capability), {}).get(view.key)
                if listing is not None:
                    self._forget(listing)
            return
        for view in views:
            self._take(view, heard_ms)

    def table(self, contract: Contract) -> Table:
        """What suits `contract`, kept up from now on; one that is no longer used costs next to nothing."""
        topic = subjects.topic(contract.capability)
        tables = self._tables.setdefault(topic, {})
        table = tables.get(contract.id)
        if table is None:
            table = tables[contract.id] = Table(contract)
            for listing in self._topics.get(topic, {}).values():
                if table.add(listing):
                    listing.file()
        return table

    def begin(self, listing: Listing) -> None:
        """A call of this process goes there."""
        listing.own += 1
        due = listing.health.state == "due"
        if due:
            listing.health.begin()
        if due or listing.entry is not None:
            listing.file()

    def end(self, listing: Listing, code: str | None, ms: float, now_ms: int) -> None:
        """It ended, as `Health.end` says."""
        listing.own -= 1
        if self.lines:
            line = self.lines.get(subjects.topic(listing.view.capability))
            if line:
                line.popitem(last=False)[1]()
        health = listing.health
        state, p50_ms, failures = health.state, health.p50_ms, health.failures
        health.end(code, ms, now_ms)
        changed = health.state != state or health.failures != failures or health.p50_ms != p50_ms
        if changed or listing.entry is not None:
            listing.file()
        if health.state == "shut" != state:
            heappush(self._shut, (health.until_ms, next(self._serial), listing))
            who, what = short_id(listing.view.node), listing.view.capability
            _log.warning("%s is not asked for %s for a minute: too much of it failed", who, what)

    def expire(self, now_ms: int) -> None:
        """Forgets what has ended, and lets be tried what was shut out for its time."""
        ends, shut = self._ends, self._shut
        while ends and ends[0][0] <= now_ms:
            _, serial, listing = heappop(ends)
            if listing.until > now_ms:
                heappush(ends, (listing.until, serial, listing))
            elif listing.until:
                self._forget(listing)
        while shut and shut[0][0] <= now_ms:
            listing = heappop(shut)[2]
            if listing.health.is_due(now_ms):
                listing.file()

    def next_end(self) -> int | None:
        """When `expire` has something to do next, at the earliest."""
        return self._ends[0][0] if self._ends else None

    def offers(self, topic: str, now_ms: int) -> list[OfferView]:
        """The live offers of `topic`; the dead ones are forgotten on the way."""
        self.expire(now_ms)
        return [listing.view for listing in self._topics.get(topic, {}).values()]

    def everything(self, now_ms: int) -> list[OfferView]:
        """Every live offer, by capability, node and instance."""
        self.expire(now_ms)
        views = [listing.view for known in self._topics.values() for listing in known.values()]
        return sorted(views, key=lambda view: view.key[2:] + view.key[:2])

    def drop_instance(self, node: str, instance: str) -> None:
        """Forgets a process that the server says is gone."""
        for listing in list(self._nodes.get(node, ())):
            if listing.view.offer.instance == instance:
                self._forget(listing)

    def watch(self, topic: str, watcher: Watcher) -> Callable[[], None]:
        """Tells `watcher` of every change to the offers of `topic`, until the returned function is called."""
        watchers = self._watchers.setdefault(topic, [])
        watchers.append(watcher)

        def leave() -> None:
            if watcher in watchers:
                watchers.remove(watcher)

        return leave

    def _take(self, view: OfferView, heard_ms: int) -> None:
        """Keeps `view`, or passes it over."""
        key, topic = view.key, subjects.topic(view.capability)
        listing = self._topics.get(topic, {}).get(key)
        if listing is None:
            if len(self._nodes.get(view.node, ())) >= MOST_OFFERS or len(key[3]) > MOST_PARAMS:
                _log.info("%s offers more than is kept: %s", short_id(view.node), view.capability)
                return
            listing = self._add(view, key, topic)
        elif view.offer.issued_at < listing.view.offer.issued_at:
            return
        else:
            self._renew(listing, view, topic)
        # For as long as it says from now on, not until then: its node's clock may be a minute off.
        fresh = not listing.until
        listing.until = heard_ms + min(view.offer.expires_at - view.offer.issued_at, LIFETIME_MS)
        if fresh:
            self._ends_at(listing)

    def _add(self, view: OfferView, key: _Key, topic: str) -> Listing:
        known = self._nodes.get(view.node, ())
        listing = Listing(view, key, Health(), next(self._serial), near=view.node == self._own)
        if known:
            self._nodes[view.node].append(listing)
        else:
            self._nodes[view.node] = [listing]
        self._topics.setdefault(topic, {})[key] = listing
        self._list(listing, topic)
        self._tell("appeared", topic, view)
        return listing

    def _renew(self, listing: Listing, view: OfferView, topic: str) -> None:
        before, now = listing.view.offer, view.offer
        if before.params == now.params:
            now = msgspec.structs.replace(now, params=before.params)
            view = OfferView(view.node, listing.view.capability, now)
        listing.view, listing.own_then = view, listing.own
        if before.schema_hash != now.schema_hash:
            self._unlist(listing, topic)
            self._list(listing, topic)
        else:
            listing.file()
        if _said(before) != _said(now):
            self._tell("changed", topic, view)

    def _list(self, listing: Listing, topic: str) -> None:
        for table in self._tables.get(topic, {}).values():
            table.add(listing)
        listing.file()

    def _unlist(self, listing: Listing, topic: str) -> None:
        listing.unfile()
        listing.shelves = []
        for table in self._tables.get(topic, {}).values():
            table.remove(listing)

    def _forget(self, listing: Listing) -> None:
        view, topic = listing.view, subjects.topic(listing.view.capability)
        listing.until = 0
        self._unlist(listing, topic)
        known = self._topics[topic]
        del known[listing.key]
        if not known:
            del self._topics[topic]
        of_node = self._nodes[view.node]
        of_node.remove(listing)
        if not of_node:
            del self._nodes[view.node]
        self._tell("gone", topic, view)

    def _ends_at(self, listing: Listing) -> None:
        heappush(self._ends, (listing.until, listing.serial, listing))
        if len(self._ends) > self._most_ends:
            # Of what was withdrawn before its time.
            self._ends = [entry for entry in self._ends if entry[2].until]
            heapify(self._ends)
            self._most_ends = 2 * len(self._ends) + MOST_OFFERS

    def _tell(self, event: Event, topic: str, view: OfferView) -> None:
        for watcher in list(self._watchers.get(topic, ())):
            watcher(event, view)


def _view(node: str, offer: OfferRecord) -> OfferView:
    """The offer with what it shares with others kept once."""
    shared = msgspec.structs.replace(
        offer,
        capability=intern(offer.capability),
        schema_hash=intern(offer.schema_hash),
        service=intern(offer.service),
        version=intern(offer.version),
    )
    return OfferView(node, _capability(shared.capability), shared)


_capability = lru_cache(maxsize=1_024)(parse_capability)


def _said(offer: OfferRecord) -> tuple[Any, ...]:
    """What a change of is worth telling: not that it was announced again."""
    return (
        offer.in_flight,
        offer.max_concurrent,
        offer.schema_hash,
        offer.trust,
        offer.service,
        offer.version,
    )
