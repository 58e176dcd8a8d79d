"""The choice of the next process for a request.

Known processes come first, the best first and each at most once per round; if none is left, the mesh is
searched.

See: docs/protocol/discovery.md#choosing.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from typing import Final

from hearthnet.bus.calls.attempt import ConnectionLost, NoResponders, ProviderGone, Request
from hearthnet.bus.routing import no_route
from hearthnet.bus.routing.discovery import Discovery
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.routing.routing_table import RoutingEntry
from hearthnet.bus.session import loopback
from hearthnet.bus.session.session import Session
from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.core.times import now_ms, steady_ms
from hearthnet.protocol import subjects

MOST_ATTEMPTS: Final = 5
LONGEST_WAIT_MS: Final = 2_000
"""Longest requested wait that is observed here; for a longer one the refusal is returned."""
_STARTING_MS: Final = 500
_BACKOFF_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 4.0
"""Pause after which a call that waits for a place looks for another process."""


class ProviderStarting(Unavailable):
    """Raised when no process offers it yet, while services of this node are starting."""


class Candidates:
    """The processes that can answer one request, best first, each at most once per round."""

    __slots__ = (
        "_ahead",
        "_asked_ms",
        "_attempts",
        "_discovery",
        "_peer",
        "_request",
        "_tried",
        "_unheard",
        "_waited",
        "_why",
        "body",
    )

    def __init__(self, peer: Session, discovery: Discovery, request: Request) -> None:
        self.body = request.body
        self._peer = peer
        self._discovery = discovery
        self._request = request
        self._tried: list[tuple[str, str]] = []
        self._attempts = 0
        self._waited = self._unheard = False
        self._ahead = self._asked_ms = 0
        self._why: HearthNetError | None = None

    def at_once(self) -> RoutingEntry | None:
        """Return the next process, if one is known and reachable; otherwise call `next`."""
        found = self._pick() if self._attempts < MOST_ATTEMPTS else None
        if found is None or not (self._peer.link.is_connected or self._is_inside(found)):
            return None
        self._attempts += 1
        self._asks(found)
        return found

    async def next(self, until: float) -> RoutingEntry:
        """Return the next process to call; wait for the connection if it is broken.

        Without a connection no provider counts as missing.

        Raises:
            HearthNetError: The last refusal or `not_found` if none is left; at the loop time `until`
                `partition` without a connection, else `timeout`.
        """
        self._attempts += 1
        found = self._pick()
        if found is not None and not (self._peer.link.is_connected or self._is_inside(found)):
            found = None
        if found is None:
            try:
                async with asyncio.timeout_at(until):
                    found = await self._search()
            except TimeoutError:
                raise self._why or self._late() from None
        if found is None or self._attempts > MOST_ATTEMPTS:
            raise self._nobody() if isinstance(self._why, ProviderStarting | None) else self._why
        self._asks(found)
        return found

    async def next_in_time(self, until: float) -> RoutingEntry:
        """Return the next process as `next`, after waiting for starting services and free places."""
        while True:
            try:
                return await self.next(until)
            except HearthNetError as error:
                if not (
                    isinstance(error, ProviderStarting | no_route.AllSlotsBusy) and self.mark(None, error)
                ):
                    raise
                await self.settled(error, until)

    def accepts(self, view: OfferView) -> bool:
        """Return whether this request may go there.

        The node must be a member now, not tried yet in this round, and the chosen one if there is one.
        """
        node, chosen, instance = view.node, self._request.node, self._request.instance
        if instance and instance != view.offer.instance:
            return False
        if (chosen and chosen != node) or (self._tried and (node, view.offer.instance) in self._tried):
            return False
        return self._peer.membership.is_member(node)

    def mark(self, listing: RoutingEntry | None, why: HearthNetError) -> bool:
        """Record that `listing` failed, and return whether the request may be repeated at all.

        A failure that loaded a provider is charged to the process's budget for repetitions
        (bus/routing/retry_budget.py).
        """
        self._why = why
        if self._attempts >= MOST_ATTEMPTS:
            return False
        free = isinstance(why, ProviderGone | ConnectionLost | ProviderStarting | no_route.AllSlotsBusy)
        return free or self._discovery.retries.take(steady_ms())

    def forget_gone(self, listing: RoutingEntry | None, why: HearthNetError) -> None:
        """Forget the process of `listing` if `why` is the server's report that it is gone.

        No other request should be sent there, whether this one may be repeated or not.
        """
        if listing is not None and isinstance(why, ProviderGone):
            self._discovery.registry.drop_instance(listing.view.node, listing.view.offer.instance)

    def clock_corrected(self, listing: RoutingEntry | None, why: HearthNetError) -> bool:
        """Return whether `listing` refused the frame only for its time, now known better."""
        if listing is None or not self._peer.clocks.learn(listing.view.node, why, self._ahead):
            return False
        self._tried.remove((listing.view.node, listing.view.offer.instance))
        return True

    async def again(self, why: HearthNetError, until: float) -> None:
        """Return at once if another known process can be called; else after a pause."""
        if self._pick() is None:
            await self.settled(why, until)

    async def settled(self, why: HearthNetError, until: float) -> None:
        """Allow every process once more, after a pause that grows with each attempt.

        The pause is at least the requested one. Waits for the connection if that broke.

        Raises:
            HearthNetError: `why`, at the deadline.
        """
        self._tried.clear()
        if isinstance(why, no_route.AllSlotsBusy):
            await self._in_line(why, until)
            return
        pause = _BACKOFF_SECONDS * 2 ** (self._attempts - 1) * random.uniform(0.5, 1.5)
        if why.retry_after_ms is not None:
            pause = max(pause, why.retry_after_ms / 1000 * random.uniform(1.0, 1.5))
        try:
            async with asyncio.timeout_at(until):
                await asyncio.sleep(pause)
                await self._peer.link.connected()
        except TimeoutError:
            raise why from None

    async def _in_line(self, why: HearthNetError, until: float) -> None:
        """Wait until a call of this process releases a place, without counting an attempt.

        A call that comes too late to a place waits in front from then on.

        Raises:
            HearthNetError: `why`, at the deadline.
        """
        self._attempts -= 1
        loop, lines = asyncio.get_running_loop(), self._discovery.registry.lines
        topic, free = subjects.topic(self._request.contract.capability), asyncio.Event()
        line = lines.setdefault(topic, OrderedDict())
        line[self] = free.set
        if self._waited:
            line.move_to_end(self, last=False)
        self._waited = True
        look_at = loop.time() + _LOOK_SECONDS * random.uniform(0.5, 1.0)
        try:
            async with asyncio.timeout_at(min(until, look_at)):
                await free.wait()
        except TimeoutError:
            if loop.time() >= until:
                raise why from None
        finally:
            line.pop(self, None)
            if not line and lines.get(topic) is line:
                del lines[topic]

    def _asks(self, listing: RoutingEntry) -> None:
        view = listing.view
        self._tried.append((view.node, view.offer.instance))
        self._ahead = self._peer.clocks.ahead(view.node)

    def _is_inside(self, listing: RoutingEntry) -> bool:
        """Return whether it is of this very process, which requires no connection."""
        return loopback.local_provider(self._peer, listing.view.node, listing.view.offer.instance) is not None

    def _pick(self) -> RoutingEntry | None:
        """Return the best known process now."""
        discovery, request = self._discovery, self._request
        table = discovery.tables.get(request.contract.id)
        if table is None:
            return None
        now = steady_ms()
        discovery.registry.expire(now)
        if not request.session:
            return table.best(self)
        topic = subjects.topic(request.contract.capability)
        found = discovery.sticky.get(topic, request.session, now)
        if found is None or not table.takes(found, self):
            found = table.best(self)
        if found is not None:
            discovery.sticky.put(topic, request.session, found, now)
        return found

    async def _search(self) -> RoutingEntry | None:
        """Return the best process as `_pick`, after a search of the mesh if none is known."""
        peer, request, contract = self._peer, self._request, self._request.contract
        first, link = request.node or peer.node_id, peer.link
        # Once: waiting for a provider that has gone must not cost two seconds of each attempt.
        patient = self._why is None and (not request.node or peer.membership.is_member(request.node))

        def near() -> bool:
            # An answer of this node, or of the chosen one, is enough: it comes first, and the others need
            # not be waited for.
            found = self._pick()
            return found is not None and found.view.node == first

        def content() -> bool:
            return not patient or self._pick() is not None or self._not_now() is not None

        while True:
            await link.connected()
            await self._discovery.follow(contract)
            found = self._pick()
            if found is None and self._not_now() is None:
                self._asked_ms = now_ms()
                self._unheard = await self._discovery.find(
                    contract, near, content, node=request.node, instance=request.instance
                )
                found = self._pick()
            if found is not None or self._why is not None or not link.settling:
                return found
            # Both ends lost the server; this one has reconnected, a provider may need another moment.
            await asyncio.sleep(_BACKOFF_SECONDS)

    def _not_now(self) -> HearthNetError | None:
        """Return the reason for which no fitting process can be called now, untried ones included."""
        table = self._discovery.tables.get(self._request.contract.id)
        if table is None:
            return None
        fitting = (one for one in table.fitting(self) if self.accepts(one.view))
        return no_route.why_unavailable(self._request.contract, fitting, steady_ms())

    def _nobody(self) -> HearthNetError:
        """Return the final error; while services of this node start, it is temporary."""
        busy = self._not_now()
        if busy is not None:
            return busy
        request, own = self._request, self._peer.node_id
        known = self._discovery.registry.offers(subjects.topic(request.contract.capability), steady_ms())
        chosen = [view for view in known if self.accepts(view)]
        error = no_route.why_no_match(request.contract, request.body, chosen, request.node)
        waits = error.code == "not_found" and request.node in ("", own)
        starting = self._peer.starting(self._asked_ms) if waits else []
        if not starting:
            # Who is only invited may not even ask for most of what there is: silence says nothing then.
            silent = self._unheard and not known and self._peer.membership.is_member(own)
            return no_route.silent(request.contract) if silent else error
        reason = f"nobody offers {self._request.contract.id} yet: {', '.join(starting)} is starting"
        return ProviderStarting(
            f"{reason}; try again in a moment",
            retry_after_ms=_STARTING_MS,
            details={"rule": "provider_starting"},
        )

    def _late(self) -> HearthNetError:
        if not self._peer.link.is_connected:
            return HearthNetError(
                "partition",
                "the server did not come back in time; is the node running?",
                details={"rule": "connection_lost"},
            )
        return HearthNetError("timeout", f"no time was left to ask for {self._request.contract.id}")


def repeatable(request: Request, error: HearthNetError) -> bool:
    """Return whether repeating the request, there or elsewhere, does no harm and may help."""
    if isinstance(error, NoResponders | ProviderStarting):
        return True
    if error.code in ("capacity_exceeded", "rate_limited"):
        return worth_waiting(error)
    return error.code == "partition" and request.contract.idempotent != "no" and worth_waiting(error)


def worth_waiting(error: HearthNetError) -> bool:
    """Return whether the wait requested by `error` is short."""
    least = LONGEST_WAIT_MS + 1 if error.code == "rate_limited" else 0
    return (least if error.retry_after_ms is None else error.retry_after_ms) <= LONGEST_WAIT_MS
