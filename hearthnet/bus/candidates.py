"""Which process is asked next.

The ones that are known, best first and each at most once a round; the mesh is asked where none is left.

See: docs/protocol/discovery.md#choosing.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from typing import Final

from hearthnet.bus import local, router
from hearthnet.bus.attempt import Gone, Lost, NobodyThere, Request
from hearthnet.bus.discovery import Discovery
from hearthnet.bus.peer import Peer
from hearthnet.bus.registry import OfferView
from hearthnet.bus.table import Listing
from hearthnet.errors import HearthNetError
from hearthnet.times import steady_ms
from hearthnet.wire import subjects

MOST_ATTEMPTS: Final = 5
LONGEST_WAIT_MS: Final = 2_000
"""Who is told to come back later than this is told so, and does not wait here."""
_STARTING_MS: Final = 500
_BACKOFF_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 4.0
"""Who waits for a place looks by itself so often: another process may have come."""


class Starting(HearthNetError):
    """Nobody offers it yet, but services of the own node are on their way."""


class Candidates:
    """The processes that can answer one request, best first, each asked at most once a round."""

    __slots__ = (
        "_ahead",
        "_attempts",
        "_discovery",
        "_peer",
        "_request",
        "_tried",
        "_waited",
        "_why",
        "body",
    )

    def __init__(self, peer: Peer, discovery: Discovery, request: Request) -> None:
        self.body = request.body
        self._peer = peer
        self._discovery = discovery
        self._request = request
        self._tried: list[tuple[str, str]] = []
        self._attempts = 0
        self._waited = False
        self._ahead = 0
        self._why: HearthNetError | None = None

    def at_once(self) -> Listing | None:
        """The next process to ask, where one is known and can be reached; else `next` has to look."""
        found = self._pick() if self._attempts < MOST_ATTEMPTS else None
        if found is None or not (self._peer.link.is_connected or self._is_inside(found)):
            return None
        self._attempts += 1
        self._asks(found)
        return found

    async def next(self, until: float) -> Listing:
        """The next process to ask; raises why none is left: the last refusal, or `not_found`.

        Waits for a connection that is broken: who cannot be asked is not said to offer nothing. At the loop
        time `until` raises `partition` where there is no connection, else `timeout`.
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
            raise self._nobody() if isinstance(self._why, Starting | None) else self._why
        self._asks(found)
        return found

    async def next_in_time(self, until: float) -> Listing:
        """As `next`, waiting for a service of the own node that is on its way, and for a free place."""
        while True:
            try:
                return await self.next(until)
            except HearthNetError as error:
                if not (isinstance(error, Starting | router.Taken) and self.mark(None, error)):
                    raise
                await self.settled(error, until)

    def accepts(self, view: OfferView) -> bool:
        """Whether this request may go there: a member now, not tried yet, the node that was chosen."""
        node, chosen, instance = view.node, self._request.node, self._request.instance
        if instance and instance != view.offer.instance:
            return False
        if (chosen and chosen != node) or (self._tried and (node, view.offer.instance) in self._tried):
            return False
        return self._peer.membership.is_member(node)

    def mark(self, listing: Listing | None, why: HearthNetError) -> bool:
        """Notes that `listing` did not do it, and says whether it may be asked for again, there or elsewhere.

        What loaded somebody is taken from the process's budget for that (bus/retries.py).
        """
        self._why = why
        if self._attempts >= MOST_ATTEMPTS:
            return False
        free = isinstance(why, Gone | Lost | Starting | router.Taken)
        return free or self._discovery.retries.take(steady_ms())

    def forget_gone(self, listing: Listing | None, why: HearthNetError) -> None:
        """Forgets the process of `listing` where `why` is that the server says it is gone.

        Nobody is to ask it again, whether this request may go elsewhere or not.
        """
        if listing is not None and isinstance(why, Gone):
            self._discovery.registry.drop_instance(listing.view.node, listing.view.offer.instance)

    def clock_corrected(self, listing: Listing | None, why: HearthNetError) -> bool:
        """Whether `listing` refused a frame for its time only, and is worth asking with the right one."""
        if listing is None or not self._peer.clocks.learn(listing.view.node, why, self._ahead):
            return False
        self._tried.remove((listing.view.node, listing.view.offer.instance))
        return True

    async def again(self, why: HearthNetError, until: float) -> None:
        """Goes on at once where another process that is known can be asked; else after a pause."""
        if self._pick() is None:
            await self.settled(why, until)

    async def settled(self, why: HearthNetError, until: float) -> None:
        """Lets every process be asked once more, after a pause that grows each time and is never shorter than
        was asked for; waits for the connection where that is what broke. Raises `why` at the deadline.
        """
        self._tried.clear()
        if isinstance(why, router.Taken):
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
        """Waits until a call of this process ends which took a place; that is no attempt, and loads nobody.

        Who comes too late to a place stands in front. Raises `why` at the deadline.
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

    def _asks(self, listing: Listing) -> None:
        view = listing.view
        self._tried.append((view.node, view.offer.instance))
        self._ahead = self._peer.clocks.ahead(view.node)

    def _is_inside(self, listing: Listing) -> bool:
        """Whether it is of this very process, which takes no server to ask."""
        return local.inside(self._peer, listing.view.node, listing.view.offer.instance) is not None

    def _pick(self) -> Listing | None:
        """The best that is known now."""
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

    async def _search(self) -> Listing | None:
        """As `_pick`, asking the mesh where nothing is known that will do."""
        peer, request, contract = self._peer, self._request, self._request.contract
        first, link = request.node or peer.node_id, peer.link
        # Once: a provider that was known and has gone is not worth two seconds of each attempt.
        named = request.node if self._why is None and peer.membership.is_member(request.node) else ""

        def near() -> bool:
            # The own node comes first: its answer is enough, and the others need not be waited for. So it is
            # with the node that was chosen.
            found = self._pick()
            return found is not None and found.view.node == first

        while True:
            await link.connected()
            await self._discovery.follow(contract)
            found = self._pick()
            if found is None and self._not_now() is None:
                await self._discovery.find(contract, near, node=named, instance=request.instance)
                found = self._pick()
            if found is not None or self._why is not None or not link.settling:
                return found
            # Both ends lost the server; this one is back, a provider may need another moment.
            await asyncio.sleep(_BACKOFF_SECONDS)

    def _not_now(self) -> HearthNetError | None:
        """Why none of those that fit can be asked at this moment, though they were not yet."""
        table = self._discovery.tables.get(self._request.contract.id)
        if table is None:
            return None
        fitting = (one for one in table.fitting(self) if self.accepts(one.view))
        return router.not_now(self._request.contract, fitting, steady_ms())

    def _nobody(self) -> HearthNetError:
        """Why nobody can be asked; while services of the own node start, that is for now only."""
        busy = self._not_now()
        if busy is not None:
            return busy
        request, own = self._request, self._peer.node_id
        known = self._discovery.registry.offers(subjects.topic(request.contract.capability), steady_ms())
        chosen = [view for view in known if self.accepts(view)]
        error = router.no_candidate(request.contract, request.body, chosen, request.node)
        waits = error.code == "not_found" and request.node in ("", own)
        starting = self._peer.starting() if waits else []
        if not starting:
            return error
        reason = f"nobody offers {self._request.contract.id} yet: {', '.join(starting)} is starting"
        return Starting("partition", f"{reason}; try again in a moment", retry_after_ms=_STARTING_MS)

    def _late(self) -> HearthNetError:
        if not self._peer.link.is_connected:
            return HearthNetError("partition", "the server did not come back in time; is the node running?")
        return HearthNetError("timeout", f"no time was left to ask for {self._request.contract.id}")


def repeatable(request: Request, error: HearthNetError) -> bool:
    """Whether asking once more, there or elsewhere, does no harm and may help."""
    if isinstance(error, NobodyThere | Starting):
        return True
    if error.code in ("capacity_exceeded", "rate_limited"):
        return worth_waiting(error)
    return error.code == "partition" and request.contract.idempotent != "no" and worth_waiting(error)


def worth_waiting(error: HearthNetError) -> bool:
    """Whether the wait is short that `error` asks for."""
    least = LONGEST_WAIT_MS + 1 if error.code == "rate_limited" else 0
    return (least if error.retry_after_ms is None else error.retry_after_ms) <= LONGEST_WAIT_MS
