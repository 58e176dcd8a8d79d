"""The offers that this process knows, with their expiry.

Properties of an offer that last for more than one call are computed when it changes, not for each call:
whether it suits a contract, its rank among the others (bus/routing/routing_table.py), its expiry.

See: docs/protocol/discovery.md#leases.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from sys import intern
from typing import Any, Final, Literal

import msgspec

from hearthnet.bus.routing.health import FAILURES, QUARANTINE_MS, Health
from hearthnet.bus.routing.place_line import PlaceLine
from hearthnet.bus.routing.routing_table import RoutingEntry, RoutingTable
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.namespaces import is_home_only
from hearthnet.core.capability_name import Capability, parse_capability
from hearthnet.core.ids import short_id
from hearthnet.protocol import subjects
from hearthnet.protocol.offer import LIFETIME_MS, MAX_OFFERS, OfferRecord
from hearthnet.trust.authorization.authority import guest_of, is_to_home

_log = logging.getLogger(__name__)
MOST_PARAMS: Final = 16_384
"""Maximum characters of JSON in the params of one offer."""
MOST_FAILING: Final = 3
"""Processes of a node that fail their first calls of a topic, one after the other, before its others are left
alone, too: a new name for each announcement would be a new chance each time.
"""
_MOST_FAILED: Final = 1_024
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
        """The provider's description of the offer: model, corpus, languages ..."""
        return self.offer.params

    def is_called(self, name: str) -> bool:
        """Return whether `name`, with or without version, is the offered capability."""
        return name in (self.capability.name, str(self.capability))

    @property
    def is_shown(self) -> bool:
        """Whether lists show it; an offer to one person of a home alone is in none."""
        return not guest_of(self.offer.trust)

    @property
    def key(self) -> _Key:
        """The identity of an offer across announcements."""
        offer = self.offer
        return (
            self.node,
            offer.instance,
            offer.capability,
            msgspec.json.encode(offer.params, order="sorted").decode(),
        )


class Registry:
    """Offers by topic (`rag.query.v1`), without expired ones.

    Claims of other nodes about time and size are bounded: an offer counts for up to 30 s after its receipt,
    whatever its node's clock, and only so many are kept per node, of limited size. `own` is the node whose
    offers are near. Times are milliseconds of one clock.
    """

    def __init__(self, own: str = "") -> None:
        self.own = own
        self._topics: dict[str, dict[_Key, RoutingEntry]] = {}
        self._tables: dict[str, dict[str, RoutingTable]] = {}
        self._nodes: dict[str, list[RoutingEntry]] = {}
        self._ends: list[tuple[int, int, RoutingEntry]] = []
        self._shut: list[tuple[int, int, RoutingEntry]] = []
        self._failed: dict[tuple[str, str], tuple[frozenset[str], int]] = {}
        """The processes of a node that failed calls of a topic since one worked, and the time of the last."""
        self._most_ends = MAX_OFFERS
        self._serial = itertools.count()
        self._of_home: dict[str, dict[str, OfferView]] = {}
        """The own node's offers to the home, by topic and params, until they are withdrawn or opened."""
        self._watchers: dict[str, list[Watcher]] = {}
        self.turns = itertools.count()
        """Numbers for calls that wait, in the order in which they began to."""
        self.lines: dict[str, PlaceLine] = {}
        """Calls waiting for a place of this process's calls, by topic."""

    def __len__(self) -> int:
        return sum(map(len, self._nodes.values()))

    def update(self, node: str, offers: tuple[OfferRecord, ...], *, withdrawn: bool, heard_ms: int) -> None:
        """Add the offers that `node` announced, as many as are kept.

        Raises:
            HearthNetError: `bad_request` for a malformed capability.
        """
        self.drop_expired(heard_ms)
        known = self._nodes.get(node)
        same = known[0].view.node if known else node
        views = [_view(same, offer) for offer in offers[:MAX_OFFERS]]
        if withdrawn:
            for view in views:
                topic = subjects.topic(view.capability)
                if same == self.own:
                    self._of_home.get(topic, {}).pop(view.key[3], None)
                entry = self._topics.get(topic, {}).get(view.key)
                if entry is not None:
                    self._forget(entry)
            return
        for view in views:
            # Another home's offer of such a name says nothing: nobody could call or learn it.
            if same == self.own or not is_home_only(view.capability.name):
                self._store(view, heard_ms)

    def table(self, contract: Contract) -> RoutingTable:
        """Return the table for `contract`, updated from now on at little cost."""
        topic = subjects.topic(contract.capability)
        tables = self._tables.setdefault(topic, {})
        table = tables.get(contract.id)
        if table is None:
            table = tables[contract.id] = RoutingTable(contract)
            for entry in self._topics.get(topic, {}).values():
                if table.add(entry):
                    entry.insert()
        elif table.contract.schema_hash != contract.schema_hash:
            # The author has changed a learned contract under its version (contracts/dynamic.py).
            table = tables[contract.id] = RoutingTable(contract)
            for entry in self._topics.get(topic, {}).values():
                self._withdraw(entry, topic)
                self._insert(entry, topic)
        return table

    def call_started(self, entry: RoutingEntry) -> None:
        """Record that a call of this process begins there."""
        entry.own += 1
        entry.health.begin()
        entry.insert()

    def call_finished(self, entry: RoutingEntry, code: str | None, ms: float, now_ms: int) -> None:
        """Record its end, as `Health.end`."""
        entry.own -= 1
        if self.lines:
            line = self.lines.get(subjects.topic(entry.view.capability))
            if line is not None:
                line.wake_first()
        health = entry.health
        state = health.state
        health.end(code, ms, now_ms)
        entry.insert()
        if not entry.is_near and (self._failed or code in FAILURES):
            self._judge_node(entry, code, now_ms)
        if health.state == "shut" != state:
            heappush(self._shut, (health.until_ms, next(self._serial), entry))
            who, what = short_id(entry.view.node), entry.view.capability
            _log.warning("%s is not asked for %s for a minute: too much of it failed", who, what)

    def _judge_node(self, entry: RoutingEntry, code: str | None, now_ms: int) -> None:
        """Shut out the unproved offers of a node for a topic if several of its processes failed."""
        node = entry.view.node
        topic = subjects.topic(entry.view.capability)
        if code == "":
            self._failed.pop((node, topic), None)
        if code not in FAILURES or entry.health.success:
            return
        failed, _ = self._failed.get((node, topic), (frozenset(), 0))
        if len(failed) < MOST_FAILING:
            failed |= {entry.view.offer.instance}
        if len(self._failed) >= _MOST_FAILED:
            self._failed.clear()
        self._failed[node, topic] = failed, now_ms
        if len(failed) >= MOST_FAILING:
            for other in self._nodes.get(node, ()):
                if subjects.topic(other.view.capability) == topic and not (
                    len(other.health) and other.health.success
                ):
                    self._shut_out(other, now_ms)

    def _shut_out(self, entry: RoutingEntry, now_ms: int) -> None:
        if entry.health.state == "well":
            entry.health.quarantine(now_ms)
            entry.insert()
            heappush(self._shut, (entry.health.until_ms, next(self._serial), entry))

    def drop_expired(self, now_ms: int) -> None:
        """Remove expired offers, and readmit those whose time of being shut out has ended."""
        ends, shut = self._ends, self._shut
        while ends and ends[0][0] <= now_ms:
            _, serial, entry = heappop(ends)
            if entry.until > now_ms:
                heappush(ends, (entry.until, serial, entry))
            elif entry.until:
                self._forget(entry)
        while shut and shut[0][0] <= now_ms:
            entry = heappop(shut)[2]
            if entry.health.is_due(now_ms):
                entry.insert()

    def offers(self, topic: str, now_ms: int) -> list[OfferView]:
        """Return the live offers of `topic`."""
        self.drop_expired(now_ms)
        return [entry.view for entry in self._topics.get(topic, {}).values()]

    def all_offers(self, now_ms: int) -> list[OfferView]:
        """Return every live offer, by capability, node and instance."""
        self.drop_expired(now_ms)
        views = [entry.view for known in self._topics.values() for entry in known.values()]
        return sorted(views, key=lambda view: view.key[2:] + view.key[:2])

    def drop_instance(self, node: str, instance: str) -> None:
        """Remove the offers of a process that the server reports as gone."""
        for entry in list(self._nodes.get(node, ())):
            if entry.view.offer.instance == instance:
                self._forget(entry)

    def is_of_home(
        self, contract: Contract, body: dict[str, Any], suits: Callable[[OfferView], bool]
    ) -> bool:
        """Return whether a request is for an offer of this node to its home that `suits`.

        So it is also while no process offers it: it must not go to another node in the meantime.
        """
        if not self._of_home:
            return False
        known = self._of_home.get(subjects.topic(contract.capability), {})
        return any(contract.fits(body, one.params) and suits(one) for one in known.values())

    def watch(self, topic: str, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` for every change of the offers of `topic`; the result ends that."""
        watchers = self._watchers.setdefault(topic, [])
        watchers.append(watcher)

        def leave() -> None:
            if watcher in watchers:
                watchers.remove(watcher)

        return leave

    def _store(self, view: OfferView, heard_ms: int) -> None:
        """Keep `view`, unless it is too much or outdated."""
        key, topic = view.key, subjects.topic(view.capability)
        entry = self._topics.get(topic, {}).get(key)
        if entry is None:
            if len(self._nodes.get(view.node, ())) >= MAX_OFFERS or len(key[3]) > MOST_PARAMS:
                _log.info("%s offers more than is kept: %s", short_id(view.node), view.capability)
                return
            entry = self._add(view, key, topic)
            failed, failed_ms = self._failed.get((view.node, topic), (frozenset(), 0))
            if len(failed) >= MOST_FAILING and heard_ms < failed_ms + QUARANTINE_MS:
                self._shut_out(entry, failed_ms)
        elif view.offer.issued_at < entry.view.offer.issued_at:
            return
        else:
            self._renew(entry, view, topic)
        if view.node == self.own:
            if is_to_home(view.offer.trust):
                self._of_home.setdefault(topic, {})[key[3]] = view
            elif topic in self._of_home:
                self._of_home[topic].pop(key[3], None)
        # Its lifetime counts from now, not from its issue: its node's clock may be a minute off.
        fresh = not entry.until
        entry.until = heard_ms + min(view.offer.expires_at - view.offer.issued_at, LIFETIME_MS)
        if fresh:
            self._schedule_expiry(entry)

    def _add(self, view: OfferView, key: _Key, topic: str) -> RoutingEntry:
        known = self._nodes.get(view.node, ())
        entry = RoutingEntry(view, key, Health(), next(self._serial), near=view.node == self.own)
        if known:
            self._nodes[view.node].append(entry)
        else:
            self._nodes[view.node] = [entry]
        self._topics.setdefault(topic, {})[key] = entry
        self._insert(entry, topic)
        self._notify("appeared", topic, view)
        return entry

    def _renew(self, entry: RoutingEntry, view: OfferView, topic: str) -> None:
        before, now = entry.view.offer, view.offer
        if before.params == now.params:
            now = msgspec.structs.replace(now, params=before.params)
            view = OfferView(view.node, entry.view.capability, now)
        entry.view, entry.own_then, entry.is_closed = view, entry.own, False
        if before.schema_hash != now.schema_hash:
            self._withdraw(entry, topic)
            self._insert(entry, topic)
        else:
            entry.insert()
        if _reported(before) != _reported(now):
            self._notify("changed", topic, view)

    def _insert(self, entry: RoutingEntry, topic: str) -> None:
        for table in self._tables.get(topic, {}).values():
            table.add(entry)
        entry.insert()

    def _withdraw(self, entry: RoutingEntry, topic: str) -> None:
        entry.remove()
        entry.shelves = []
        for table in self._tables.get(topic, {}).values():
            table.remove(entry)

    def _forget(self, entry: RoutingEntry) -> None:
        view, topic = entry.view, subjects.topic(entry.view.capability)
        entry.until = 0
        self._withdraw(entry, topic)
        known = self._topics[topic]
        del known[entry.key]
        if not known:
            del self._topics[topic]
        of_node = self._nodes[view.node]
        of_node.remove(entry)
        if not of_node:
            del self._nodes[view.node]
        self._notify("gone", topic, view)

    def _schedule_expiry(self, entry: RoutingEntry) -> None:
        heappush(self._ends, (entry.until, entry.serial, entry))
        if len(self._ends) > self._most_ends:
            # Drop the entries of offers that were withdrawn before their expiry.
            self._ends = [entry for entry in self._ends if entry[2].until]
            heapify(self._ends)
            self._most_ends = 2 * len(self._ends) + MAX_OFFERS

    def _notify(self, event: Event, topic: str, view: OfferView) -> None:
        for watcher in list(self._watchers.get(topic, ())):
            watcher(event, view)


def _view(node: str, offer: OfferRecord) -> OfferView:
    """Return the offer with strings shared with other offers."""
    shared = msgspec.structs.replace(
        offer,
        capability=intern(offer.capability),
        schema_hash=intern(offer.schema_hash),
        service=intern(offer.service),
        version=intern(offer.version),
    )
    return OfferView(node, parse_capability(shared.capability), shared)


def _reported(offer: OfferRecord) -> tuple[Any, ...]:
    """Return the properties whose change is reported; a mere repetition changes none."""
    return (
        offer.in_flight,
        offer.max_concurrent,
        offer.schema_hash,
        offer.trust,
        offer.service,
        offer.version,
    )
