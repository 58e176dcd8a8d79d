"""The choice of the next process for a request.

Known processes come first, the best first and each at most once per round; if none is left, the mesh is
searched.

See: docs/protocol/discovery.md#choosing.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any, Final

from hearthnet.bus.calls.attempt import ConnectionLost, NoResponders, ProviderGone, Request
from hearthnet.bus.routing import no_route
from hearthnet.bus.routing.discovery import Discovery
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.routing.place_line import PlaceLine
from hearthnet.bus.routing.routing_table import RoutingEntry
from hearthnet.bus.session.session import Session
from hearthnet.contracts.match import matched_fields
from hearthnet.contracts.namespaces import is_provider_defined
from hearthnet.core.errors import PLACES_TAKEN, SHARING_RULES, HearthNetError, Unavailable
from hearthnet.core.node_state import starting_services
from hearthnet.core.times import now_ms, steady_ms
from hearthnet.protocol import subjects
from hearthnet.trust.authorization.authority import guest_of, is_to_home
from hearthnet.trust.authorization.token import Claims
from hearthnet.trust.community.roster import RANK

MOST_ATTEMPTS: Final = 5
LONGEST_WAIT_MS: Final = 2_000
"""Longest requested wait that is observed here; for a longer one the refusal is returned."""
_STARTING_MS: Final = 500
_BACKOFF_SECONDS: Final = 0.1
_CROWDED_MS: Final = 1_000
"""Time for which a process that had no free place is presumed to have none: calls wait there at once."""
_LOOK_SECONDS: Final = 4.0
"""Pause after which a call that waits for a place looks for another process."""


class ProviderStarting(Unavailable):
    """Raised when no process offers it yet, while services of this node are starting."""


class Candidates:
    """The processes that can answer one request, best first, each at most once per round."""

    __slots__ = (
        "_ahead",
        "_attempts",
        "_bound",
        "_discovery",
        "_error",
        "_is_silent",
        "_request",
        "_searched_ms",
        "_session",
        "_tried",
        "_turn",
        "body",
        "waits",
    )

    def __init__(self, session: Session, discovery: Discovery, request: Request) -> None:
        self.body = request.body
        self.waits = False
        """Whether the provider that was picked is to keep the call until a place is free."""
        self._session = session
        self._discovery = discovery
        self._request = request
        self._tried: list[tuple[str, str]] = []
        self._attempts = 0
        self._is_silent = False
        self._turn: int | None = None
        self._ahead = self._searched_ms = 0
        self._bound = request.node
        """The only node that may be called, if not empty."""
        self._error: HearthNetError | None = None
        """The failure of the last attempt."""

    async def pick(self, until: float) -> RoutingEntry:
        """Return the next process to call; search the mesh if none is known.

        Waits for the connection if it is broken: without one, no provider counts as missing.

        Raises:
            HearthNetError: The last refusal or `not_found` if none is left; at the loop time `until`
                `partition` without a connection, else `timeout`.
        """
        self._attempts += 1
        entry = self._best()
        if entry is None or self._is_early(entry) or not self._can_reach(entry.view):
            try:
                async with asyncio.timeout_at(until):
                    entry = await self._search()
            except TimeoutError:
                raise self._error or self._late() from None
        if entry is None or self._attempts > MOST_ATTEMPTS:
            last = self._error
            raise self._no_route() if last is None or isinstance(last, ProviderStarting) else last
        self._tried.append((entry.view.node, entry.view.offer.instance))
        self._ahead = self._session.sender.clocks.ahead(entry.view.node)
        if entry.crowded_ms and not self.waits:
            self.waits = steady_ms() < entry.crowded_ms and not self._has_other()
        return entry

    async def pick_patiently(self, until: float) -> RoutingEntry:
        """Return the next process as `pick`, after waiting for starting services and free places."""
        while True:
            try:
                return await self.pick(until)
            except (ProviderStarting, no_route.AllSlotsBusy) as error:
                if not self.may_retry(None, error, is_repeatable=True):
                    raise
                await self._wait(error, until)

    def accepts(self, view: OfferView) -> bool:
        """Return whether this request may go there.

        The node must be a member now, not tried yet in this round, and the chosen one if there is one.
        """
        node, chosen, instance = view.node, self._bound, self._request.instance
        if instance and instance != view.offer.instance:
            return False
        if (chosen and chosen != node) or (self._tried and (node, view.offer.instance) in self._tried):
            return False
        if is_to_home(view.offer.trust) and not self._is_of_home(view):
            return False
        return self._session.membership.is_member(node) and not self._is_above_own_level(view)

    def _is_above_own_level(self, view: OfferView) -> bool:
        """Return whether another home offers this to members of a higher level alone, by its announcement.

        A call under a token has the level of the node that issued it.
        """
        trust, session = view.offer.trust, self._session
        if not trust or view.node == session.node_id:
            return False
        claims = self._claims()
        issuer = session.node_id if claims is None else claims.iss
        return RANK.get(trust, 0) > RANK[session.roster.level(issuer)]

    def _claims(self) -> Claims | None:
        """Return the claims of the request's token; None without a readable one, which is refused there."""
        if self._request.token:
            with contextlib.suppress(HearthNetError):
                return self._session.tokens.claims(self._request.token)
        return None

    def is_covered(self, body: dict[str, Any]) -> bool:
        """Return whether the request's token, if there is a readable one, covers a call with this body."""
        claims = self._claims()
        return claims is None or claims.scope.constraints.violated(body) is None

    def _is_of_home(self, view: OfferView) -> bool:
        """Return whether the request reaches an offer to the home alone.

        The provider decides; but an error for the lack of offers must not name those that are none for it.
        """
        token, guest = self._request.token, guest_of(view.offer.trust)
        if not token:
            return not guest
        fields = matched_fields(self._request.contract.match, view.params)
        try:
            return self._session.tokens.claims(token).is_of_home(view.node, fields, guest)
        except HearthNetError:
            return False

    def may_retry(
        self, entry: RoutingEntry | None, error: HearthNetError, *, is_repeatable: bool, is_new: bool = True
    ) -> bool:
        """Return whether `pick` may be called again after `entry` failed with `error`.

        `is_repeatable`: repeating does no harm and may help. `is_new`: nothing was received from it, so that
        a refusal for the frame's time alone, now known better, may be repeated there. A failure that loaded a
        provider is charged to the process's budget for repetitions (bus/routing/health.py). No other
        request is sent to a process that the server reports as gone.
        """
        if entry is not None:
            node, instance = entry.view.node, entry.view.offer.instance
            self._learn(entry, error)
            if is_new and self._session.sender.clocks.update(node, error, self._ahead):
                self._tried.remove((node, instance))
                return True
        if not is_repeatable:
            return False
        if entry is not None and _may_have_happened(self._request, error):
            self._bound = entry.view.node
        self._error = error
        if self._attempts >= MOST_ATTEMPTS:
            return False
        if error.rule in SHARING_RULES:
            return self._has_other()
        if error.rule == PLACES_TAKEN and self._may_wait():
            return True
        free = isinstance(error, ProviderGone | ConnectionLost | ProviderStarting | no_route.AllSlotsBusy)
        return free or self._discovery.retries.spend(steady_ms())

    def _learn(self, entry: RoutingEntry, error: HearthNetError) -> None:
        """Record what a failure says about the process, for other calls."""
        if error.rule == PLACES_TAKEN:
            entry.crowded_ms = steady_ms() + _CROWDED_MS
        elif error.rule in SHARING_RULES:
            entry.is_closed = True
            entry.insert()
        elif isinstance(error, ProviderGone):
            self._discovery.registry.drop_instance(entry.view.node, entry.view.offer.instance)

    def _may_wait(self) -> bool:
        """Return whether the next attempt is the first that waits for a place at its provider.

        It is not charged: a call is refused so no more than once.
        """
        if not self.waits:
            self.waits = self._attempts == MOST_ATTEMPTS - 1 or not self._has_other()
            return self.waits
        return False

    async def backoff(self, error: HearthNetError, until: float) -> None:
        """Return at once if another known process can be called; else after a pause.

        Raises:
            HearthNetError: `error`, at the deadline.
        """
        if self._best() is None:
            await self._wait(error, until)

    async def _wait(self, error: HearthNetError, until: float) -> None:
        """Allow every process once more, after a pause that grows with each attempt.

        The pause is at least the requested one. Waits for the connection if that broke.
        """
        self._tried.clear()
        if self.waits and error.rule == PLACES_TAKEN:
            return
        if isinstance(error, no_route.AllSlotsBusy):
            await self._wait_for_slot(error, until)
            return
        pause = _BACKOFF_SECONDS * 2 ** (self._attempts - 1) * random.uniform(0.5, 1.5)
        if error.retry_after_ms is not None:
            pause = max(pause, error.retry_after_ms / 1000 * random.uniform(1.0, 1.5))
        try:
            async with asyncio.timeout_at(until):
                await asyncio.sleep(pause)
                await self._session.link.connected()
        except TimeoutError:
            raise error from None

    async def _wait_for_slot(self, error: HearthNetError, until: float) -> None:
        """Wait until a call of this process releases a place, without counting an attempt.

        Calls wait in the order in which each first found no place. Each also looks from time to time whether
        a call of another process released one.
        """
        self._attempts -= 1
        loop, registry = asyncio.get_running_loop(), self._discovery.registry
        topic = subjects.topic(self._request.contract.capability)
        if self._turn is None:
            self._turn = next(registry.turns)
        line = registry.lines.setdefault(topic, PlaceLine())
        try:
            while True:
                look_at = loop.time() + _LOOK_SECONDS * random.uniform(0.5, 1.0)
                if await line.wait(self._turn, min(until, look_at)):
                    return
                if loop.time() >= until:
                    raise error from None
                if not line.is_promised:
                    return
        finally:
            if not line and registry.lines.get(topic) is line:
                del registry.lines[topic]

    def _is_early(self, entry: RoutingEntry) -> bool:
        """Return whether another node was heard first, and this node may have an offer to the home."""
        contract, own = self._request.contract, self._session.node_id
        if self._bound or not contract.match or entry.view.node == own:
            return False
        return not self._discovery.has_asked(contract)

    def _can_reach(self, view: OfferView) -> bool:
        """Return whether there is a connection, or the offer is of this very process, which requires none."""
        session = self._session
        return session.link.is_connected or session.sender.is_local(view.node, view.offer.instance)

    def _best(self) -> RoutingEntry | None:
        """Return the best known process now."""
        discovery, request = self._discovery, self._request
        table = discovery.tables.get(request.contract.id)
        if table is None:
            return None
        now = steady_ms()
        discovery.registry.drop_expired(now)
        if not self._bound and discovery.registry.is_of_home(request.contract, self.body, self._is_of_home):
            self._bound = self._session.node_id  # what the home keeps to itself is asked of no other node
        if not request.session:
            return table.best(self)
        topic = subjects.topic(request.contract.capability)
        entry = discovery.sessions.get(topic, request.session, now)
        if entry is None or not table.accepts(entry, self):
            entry = table.best(self)
        if entry is not None:
            discovery.sessions.put(topic, request.session, entry, now)
        return entry

    def _has_other(self) -> bool:
        """Return whether a process is known that was not tried in this round."""
        table = self._discovery.tables.get(self._request.contract.id)
        return table is not None and table.best(self) is not None

    async def _search(self) -> RoutingEntry | None:
        """Return the best process as `_best`, after a search of the mesh if none is known."""
        session, request, contract = self._session, self._request, self._request.contract
        first, link = request.node or session.node_id, session.link
        # Once: waiting for a provider that has gone must not cost two seconds of each attempt.
        patient = self._error is None and (not request.node or session.membership.is_member(request.node))

        def has_first() -> bool:
            # An answer of this node, or of the chosen one, is enough: it comes first, and the others need
            # not be waited for.
            best = self._best()
            return best is not None and best.view.node == first

        def is_content() -> bool:
            return not patient or self._best() is not None or self._unavailable() is not None

        while True:
            await link.connected()
            await self._discovery.follow(contract)
            entry = self._best()
            if self._unavailable() is None if entry is None else self._is_early(entry):
                self._searched_ms = now_ms()
                self._is_silent = await self._discovery.find(
                    contract, has_first, is_content, node=request.node, instance=request.instance
                )
                entry = self._best()
            if entry is not None or self._error is not None or not link.is_settling:
                return entry
            # Both ends lost the server; this one has reconnected, a provider may need another moment.
            await asyncio.sleep(_BACKOFF_SECONDS)

    def _unavailable(self) -> HearthNetError | None:
        """Return the reason for which no fitting process can be called now, untried ones included."""
        table = self._discovery.tables.get(self._request.contract.id)
        if table is None:
            return None
        matching = (one for one in table.matching(self) if self.accepts(one.view))
        return no_route.why_unavailable(self._request.contract, matching, steady_ms())

    def _no_route(self) -> HearthNetError:
        """Return the final error; while services of this node start, it is temporary."""
        unavailable = self._unavailable()
        if unavailable is not None:
            return unavailable
        request, contract, own = self._request, self._request.contract, self._session.node_id
        offers = self._discovery.registry.offers(subjects.topic(contract.capability), steady_ms())
        accepted = [view for view in offers if self.accepts(view)]
        above = [
            view for view in offers if self._is_above_own_level(view) and request.node in ("", view.node)
        ]
        if above and not accepted:
            return no_route.above_own_level(contract, above[0])
        others = sorted({view.node for view in offers} - {own})
        if is_provider_defined(contract.name) and request.node == own and others and not accepted:
            return no_route.only_elsewhere(contract, others)
        error = no_route.why_no_match(contract, request.body, accepted, request.node)
        if error.code == "not_found" and request.node in ("", own):
            starting = starting_services(self._session.home, self._searched_ms)
            if starting:
                reason = f"nobody offers {contract.id} yet: {', '.join(starting)} is starting"
                return ProviderStarting(
                    f"{reason}; try again in a moment", retry_after_ms=_STARTING_MS, rule="provider_starting"
                )
        # Who is only invited may not even ask for most of what there is: silence says nothing then.
        is_silent = self._is_silent and not offers and self._session.membership.is_member(own)
        return no_route.silent(contract) if is_silent else error

    def _late(self) -> HearthNetError:
        if not self._session.link.is_connected:
            return Unavailable(
                "the server did not come back in time; is the node running?", rule="connection_lost"
            )
        return HearthNetError("timeout", f"no time was left to ask for {self._request.contract.id}")


def _may_have_happened(request: Request, error: HearthNetError) -> bool:
    """Return whether an effect on the called home alone may have happened.

    That home knows it by its key and repeats its outcome; another one would have it once more.
    """
    contract, lost = request.contract, error.code == "partition" and not isinstance(error, NoResponders)
    return lost and contract.side_effects and not contract.is_shared_effect


def is_repeatable(request: Request, error: HearthNetError) -> bool:
    """Return whether repeating the request, there or elsewhere, does no harm and may help."""
    if isinstance(error, NoResponders | ProviderStarting):
        return True
    harmless = error.code in ("capacity_exceeded", "rate_limited")
    lost = error.code == "partition" and request.contract.idempotent != "no"
    if error.rule in SHARING_RULES:
        return True
    return (harmless or lost) and is_wait_short(error)


def is_wait_short(error: HearthNetError) -> bool:
    """Return whether the wait requested by `error` is short."""
    least = LONGEST_WAIT_MS + 1 if error.code == "rate_limited" else 0
    return (least if error.retry_after_ms is None else error.retry_after_ms) <= LONGEST_WAIT_MS
