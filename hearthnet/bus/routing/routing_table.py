"""The offers that suit one contract, in the order of preference.

A table keeps its offers sorted by score, all of them and those for each value that the contract's `match`
compares by `equal` or `in` (one corpus, one model). A changed offer is removed and inserted again; a call
examines the first ones only. Pure; the reasons are in docs/decisions/0011.

See: docs/protocol/discovery.md#matching, docs/protocol/discovery.md#choosing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from random import random
from typing import TYPE_CHECKING, Any, Final, Protocol

from hearthnet.contracts.contract import Contract
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol.offer import places_of_other

if TYPE_CHECKING:
    from hearthnet.bus.routing.health import Health
    from hearthnet.bus.routing.offer_registry import OfferView

LOCAL_BELOW: Final = 0.8
"""A process of this node is preferred while its load is below this share."""
LOCAL_BONUS: Final = 50
FAILURE_MALUS: Final = 1_000
FULL: Final = 1_000_000_000
"""Added to the score of an offer that was full when last announced: it is called only if no other is left."""
UNMEASURED: Final = FULL // 10
"""Added to the score of an offer that was not called yet, except of an own process with room."""
MOST_PLACES: Final = 4
"""Places of another node's offer that count in its score: with more it would be chosen for its own claim."""
SPREAD_MS: Final = 50
"""Differences in score up to this, or to half of the best one, are no reason to call one node alone."""
_TRIAL_SHARE: Final = 0.25
"""Share of the calls that go to nodes that were not called yet, while there are such."""
_SAMPLES: Final = 16
"""Entries among which each node counts once; looking at all of very many would take too long."""
_LAST: Final = 1 << 62
_FEW_NODES: Final = 256
"""With more nodes, one that has all the offers that are kept of a node is a minority among `_SAMPLES`."""
Rank = tuple[int, int, "RoutingEntry"]


class Shelf(list[Rank]):
    """Offers in the order of their rank, and by node."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: dict[str, RoutingEntry | list[RoutingEntry]] = {}
        """The offers of each node; the one itself where a node has no more, which takes less memory."""

    def add(self, entry: RoutingEntry, rank: Rank) -> None:
        """Insert an offer."""
        insort(self, rank)
        node, held = entry.view.node, self.nodes.get(entry.view.node)
        if isinstance(held, list):
            held.append(entry)
        else:
            self.nodes[node] = entry if held is None else [held, entry]

    def discard(self, entry: RoutingEntry, rank: Rank) -> None:
        """Remove an offer that was inserted with this rank."""
        del self[bisect_left(self, rank)]
        node, held = entry.view.node, self.nodes[entry.view.node]
        if isinstance(held, list):
            held.remove(entry)
        if not isinstance(held, list) or not held:
            del self.nodes[node]

    def of_random_node(self, start: int, end: int) -> RoutingEntry | None:
        """Return an entry between two places of a random node, however many offers the others have there.

        None if there are too many nodes, or none was found among some.
        """
        if len(self.nodes) > _FEW_NODES:
            return None
        nodes, first, last = list(self.nodes.values()), self[start], self[end - 1]
        for _ in range(_SAMPLES):
            held = nodes[int(random() * len(nodes))]
            entries = held if isinstance(held, list) else [held]
            for _ in range(MOST_PLACES):
                entry = entries[int(random() * len(entries))]
                if entry.rank is not None and first <= entry.rank <= last:
                    return entry
        return None


class RoutingEntry:
    """One offer as this process knows it: the offer, its health, and this caller's load on it."""

    __slots__ = (
        "crowded_ms",
        "health",
        "is_closed",
        "is_near",
        "key",
        "own",
        "own_then",
        "rank",
        "serial",
        "shelves",
        "until",
        "view",
    )

    def __init__(self, view: OfferView, key: Any, health: Health, serial: int, *, near: bool) -> None:
        self.view = view
        self.key = key
        self.health = health
        self.serial = serial
        self.is_near = near
        self.is_closed = False
        """Whether terms of sharing were its refusal since its last announcement: it is called last."""
        self.until = self.crowded_ms = 0
        self.own = 0
        """Number of calls of this process that run there."""
        self.own_then = 0
        """Their number at the last announcement, which included them."""
        self.rank: Rank | None = None
        """Its entry in the shelves; None while it is shut out and in none."""
        self.shelves: list[Shelf] = []

    @property
    def running(self) -> int:
        """The number of calls that run there, estimated between two announcements."""
        running = self.view.offer.in_flight + self.own - self.own_then
        return running if running > self.own else self.own

    @property
    def load(self) -> float:
        """The share of its places that is taken, by its own account; without places it is full."""
        return self.running / (self.view.offer.max_concurrent or 0.5)

    @property
    def is_full(self) -> bool:
        """True if this caller's calls alone take all places that are for its node: no call need be sent."""
        places = self.view.offer.max_concurrent
        return self.own >= (places if self.is_near else places_of_other(places))

    def score(self) -> int:
        """Return the score in whole milliseconds; the lowest is called first.

        What another node claims about its load can only make it be called last. Only what this process
        measured can make it be called earlier: how long calls took, and its own calls that run there.
        """
        health, offer, own = self.health, self.view.offer, self.own
        running = offer.in_flight + own - self.own_then
        places = offer.max_concurrent or 0.5
        load = (running if running > own else own) / places
        last = FULL if load >= 1 or self.is_closed else 0
        if (load >= LOCAL_BELOW or not self.is_near) and not len(health):
            last += UNMEASURED
        if self.is_near:
            last -= LOCAL_BONUS
        else:
            load = own / (places if places < MOST_PLACES else MOST_PLACES)
        return int(health.p50_ms * (1 + load) + (1 - health.success) * FAILURE_MALUS) + last

    def insert(self) -> None:
        """Insert it at its present rank, or nowhere while it is shut out.

        One that stands alone keeps its rank, which decides nothing, until another is inserted beside it.
        """
        if not self.health.may_be_called:
            self.remove()
        elif self.rank is None:
            for shelf in self.shelves:
                if len(shelf) == 1:
                    shelf[0][2].move()
            rank = self.rank = (self.score(), self.serial, self)
            for shelf in self.shelves:
                shelf.add(self, rank)
        else:
            for shelf in self.shelves:
                if len(shelf) > 1:
                    self.move()
                    return

    def move(self) -> None:
        """Move it from the rank that it has to its present one."""
        before, score = self.rank, self.score()
        if before is None or before[0] == score:
            return
        rank = self.rank = (score, self.serial, self)
        for shelf in self.shelves:
            del shelf[bisect_left(shelf, before)]
            insort(shelf, rank)

    def remove(self) -> None:
        """Remove it from all shelves."""
        rank = self.rank
        if rank is not None:
            self.rank = None
            for shelf in self.shelves:
                shelf.discard(self, rank)


class Asker(Protocol):
    """The choice of a process for one call: the facts that a table does not have."""

    body: dict[str, Any]

    def accepts(self, view: OfferView) -> bool:
        """Return whether the call may go there: a member, not tried before, on the chosen node."""


class RoutingTable:
    """The offers that suit `contract`."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        self.entries: set[RoutingEntry] = set()
        fields = [(*path.partition(".")[::2], rule) for path, rule in contract.match.items()]
        self._exact = [(part, name, rule) for part, name, rule in fields if rule.rule in ("equal", "in")]
        self._fields = [(part, name) for part, name, _ in fields]
        self._all = Shelf(), Shelf()
        self._by: list[dict[str, tuple[Shelf, Shelf]]] = [{} for _ in self._exact]

    def add(self, entry: RoutingEntry) -> bool:
        """Add an offer of this topic if it suits the contract, which is checked only here."""
        if not is_compatible(self.contract, entry.view):
            return False
        self.entries.add(entry)
        entry.remove()
        entry.shelves = [*entry.shelves, *self._shelves(entry)]
        return True

    def remove(self, entry: RoutingEntry) -> None:
        """Remove an offer that is in no shelf any more."""
        self.entries.discard(entry)
        for (_, _, rule), values in zip(self._exact, self._by, strict=True):
            for value in _texts(rule.offered(entry.view.params)):
                if value in values and not any(values[value]):
                    del values[value]

    def best(self, asker: Asker) -> RoutingEntry | None:
        """Return the process to call now, None if there is none.

        First this node's below its threshold, else by chance one of those with about the lowest score: a
        node is then called no more often than others that answer as well.
        """
        (near, everybody), exactly = self._shelf(asker.body)
        if len(everybody) == 1:
            entry = everybody[0][2]
            return entry if self._accepts(entry, asker, exactly) else None
        if near:
            for entry in _in_order(near):
                if entry.load < LOCAL_BELOW and self._accepts(entry, asker, exactly):
                    return entry
        for entry in _spread(everybody):
            if self._accepts(entry, asker, exactly):
                return entry
        return None

    def accepts(self, entry: RoutingEntry, asker: Asker) -> bool:
        """Return whether `entry` is still listed, and can be called now."""
        return entry.rank is not None and entry in self.entries and self._accepts(entry, asker, False)

    def matching(self, asker: Asker) -> Iterator[RoutingEntry]:
        """Iterate over every offer that fits the request, callable or not: for the final error."""
        fits, body = self.contract.fits, asker.body
        return (entry for entry in self.entries if fits(body, entry.view.params))

    def _accepts(self, entry: RoutingEntry, asker: Asker, exactly: bool) -> bool:
        return (
            not entry.is_full
            and asker.accepts(entry.view)
            and (exactly or self.contract.fits(asker.body, entry.view.params))
        )

    def _shelf(self, body: dict[str, Any]) -> tuple[tuple[Shelf, Shelf], bool]:
        """Return the shortest shelves with all fitting offers, and whether they have no others."""
        found, wanted = None, 0
        for part, name in self._fields:
            wanted += body.get(part, _NOTHING).get(name) is not None
        if not wanted:
            return self._all, True
        for (part, name, _), values in zip(self._exact, self._by, strict=True):
            value = body.get(part, _NOTHING).get(name)
            if isinstance(value, str):
                found = values.get(value, _EMPTY)
                break
        return (found, wanted == 1) if found is not None else (self._all, False)

    def _shelves(self, entry: RoutingEntry) -> list[Shelf]:
        pairs = [self._all]
        for (_, _, rule), values in zip(self._exact, self._by, strict=True):
            offered = rule.offered(entry.view.params)
            if rule.rule == "in" or len(offered) == 1:
                pairs += [values.setdefault(value, (Shelf(), Shelf())) for value in _texts(offered)]
        return [shelf for near, every in pairs for shelf in ((near, every) if entry.is_near else (every,))]


_NOTHING: Final[dict[str, Any]] = {}
_EMPTY: Final = Shelf(), Shelf()


def same_schema(contract: Contract, view: OfferView) -> bool:
    """Return whether equal versions have equal schemas; another minor has another hash.

    See: docs/protocol/discovery.md#matching.
    """
    return view.capability != contract.capability or view.offer.schema_hash == contract.schema_hash


def is_compatible(contract: Contract, view: OfferView) -> bool:
    """Return whether an offer can answer calls of `contract` by version, schema and params.

    Params come from another node: those that their contract does not allow are not compared.
    """
    if not view.capability.serves(contract.capability):
        return False
    if not same_schema(contract, view):
        return False
    try:
        contract.check_offer(view.params)
    except HearthNetError:
        return False
    return True


def _texts(values: list[Any]) -> list[str]:
    return list(dict.fromkeys(value for value in values if isinstance(value, str)))


def _in_order(shelf: Shelf) -> Iterator[RoutingEntry]:
    """Iterate from the best on, starting at random among equals, so that callers spread."""
    if not shelf:
        return
    best = shelf[0][0]
    equals = bisect_right(shelf, (best, _LAST)) if len(shelf) > 1 and shelf[1][0] == best else 1
    start = int(random() * equals)
    for place in range(equals):
        yield shelf[(start + place) % equals][2]
    for place in range(equals, len(shelf)):
        yield shelf[place][2]


def _spread(shelf: Shelf) -> Iterator[RoutingEntry]:
    """Iterate from a random node of the best on, and now and then from one that was not called yet."""
    if not shelf:
        return
    first = best = shelf[0][0]
    known = bisect_left(shelf, (UNMEASURED - LOCAL_BONUS,))
    if known and first < UNMEASURED:
        if known < len(shelf) and shelf[known][0] < FULL - LOCAL_BONUS and random() < _TRIAL_SHARE:
            yield _one(shelf, known, bisect_left(shelf, (FULL - LOCAL_BONUS,)))
        best = min(first + max(SPREAD_MS, first // 2), UNMEASURED - LOCAL_BONUS - 1)
    if shelf[1][0] <= best:
        yield _one(shelf, 0, bisect_right(shelf, (best, _LAST)))
    yield from _in_order(shelf)


def _one(shelf: Shelf, start: int, end: int) -> RoutingEntry:
    """Return an entry between two places, of a random node among those of some entries."""
    count = end - start
    if count <= _SAMPLES:
        ranks = shelf[start:end]
    elif (found := shelf.of_random_node(start, end)) is not None:
        return found
    else:
        ranks = [shelf[start + int(random() * count)] for _ in range(_SAMPLES)]
    turn = int(random() * len(ranks))
    of_node = {rank[2].view.node: rank[2] for rank in (*ranks[turn:], *ranks[:turn])}
    return list(of_node.values())[int(random() * len(of_node))]
