"""Learning of contracts that are not installed, from the processes that offer them.

Under `experimental.` the offer names its contract by a version that is derived from the whole contract
(contracts/dynamic.py), so that no provider can supply another one; this node's offer comes first. Other names
are learned from this node's own processes only. Their versions are the author's, who may change a contract
under one: what a process supplied counts while that process lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from hearthnet.bus.calls.attempt import ConnectionLost
from hearthnet.bus.calls.unary import ReceivedReply
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.contracts import is_provider_defined
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.dynamic import checked
from hearthnet.contracts.namespaces import is_derived, is_home_only
from hearthnet.contracts.registry import contracts
from hearthnet.core import ids, process_lock
from hearthnet.core.capability_name import split_name
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.trust.contract_signature import check_shared, plain_name

_log = logging.getLogger(__name__)
MAX_TRIED: Final = 4
"""Maximum of offers that are asked for one contract: a neighbour may offer a name without its contract."""
MAX_LISTED: Final = 64
"""Maximum of contracts that one listing fetches from another home."""
LISTING_SECONDS: Final = 2.0
"""Longest time that a listing waits for contracts; a process that is slower is asked at the first call."""
FAILURE_SECONDS: Final = 600.0
"""Time for which a listing does not ask again for a contract that could not be fetched."""
BUSY_SECONDS: Final = 20.0
"""The same for one whose provider was busy, or not done in time."""
_BUSY: Final = frozenset({"capacity_exceeded", "partition", "rate_limited", "timeout"})
_AT_ONCE: Final = 8
"""Maximum of contracts that are fetched from one home at a time; a process serves 16."""
MAX_FAILURES: Final = 4_096
"""Maximum of offers that are remembered as failed; the oldest is dropped."""
MAX_CLAIMS: Final = 8
"""Maximum of names that an error lists."""
CONTRACT: Final = "node.contract@1.0"
_OfferKey = tuple[str, str, str]
"""Node, instance and `name@major.minor`. A neighbour may use the instance of another node's process."""
Ask = Callable[..., Awaitable[ReceivedReply]]
"""`Bus.call`."""
ListOffers = Callable[..., Awaitable[list[OfferView]]]
"""Lists the offers of a capability by a new find, as `Discovery.listed`."""


def cached_contract(capability: str) -> Contract | None:
    """Return the known contract of exactly `name@major.minor`.

    None if it is unknown, and for a bare name.
    """
    name, version = split_name(capability)
    if version is None:
        return None
    try:
        return contracts().find(name, version)
    except HearthNetError:
        return None


def _refused_package(name: str) -> HearthNetError | None:
    """Return why every packaged contract of `name` is refused; None if none is, or there is no package."""
    try:
        contracts().has_packaged(name)
    except HearthNetError as error:
        return error
    return None


def other_claims(name: str, offers: list[OfferView]) -> HearthNetError | None:
    """Return the error that lists the names under which other homes offer `name`; None if none does."""
    nodes: dict[str, set[str]] = {}
    for view in offers:
        if plain_name(view.capability.name) == name.partition("@")[0]:
            nodes.setdefault(view.capability.name, set()).add(view.node)
    if not nodes:
        return None
    # Those of the most homes first: a neighbour can make up any number of names.
    claims = sorted(nodes, key=lambda claim: (-len(nodes[claim]), claim))[:MAX_CLAIMS]
    homes = [f"{claim} ({len(nodes[claim])} home{'s' * (len(nodes[claim]) > 1)})" for claim in claims]
    return HearthNetError(
        "not_found",
        f"{name} is no capability of this home; others offer {', '.join(homes)}: call one of these names",
        alt=claims,
    )


class ContractLearner:
    """The contracts that one connection has learned, and the processes that supplied them."""

    def __init__(self, home: Home, own: str, ask: Ask, list_offers: ListOffers) -> None:
        self._home = home
        self._own = own
        self._ask = ask
        self._list_offers = list_offers
        self._origins: dict[str, str] = {}
        """The instance that supplied a contract of this node's own, by `name@major.minor`."""
        self._failed: dict[_OfferKey, float] = {}
        """Until when a listing leaves out an offer, in loop time."""

    async def find(self, capability: str, node: str = "", listed: Sequence[OfferView] = ()) -> Contract:
        """Return the contract of `capability`, learned from its provider unless that was done.

        `node` is the only provider that is asked, if it is given. Where one of the offers `listed` just now
        fits, no others are listed.

        Raises:
            HearthNetError: `not_found` if no process offers it, with the names that other homes have for it,
                if it is a package's; the provider's error.
        """
        learned = self._known(capability)
        if learned is not None:
            return learned
        fitting = [view for view in listed if view.is_called(capability) and view.node == (node or view.node)]
        if fitting:
            return await self._fetch_first(capability, fitting)
        name = capability.partition("@")[0]
        if is_home_only(name):
            return await self._find_own(capability, name)
        if node:
            views = await self._list_offers(
                capability, lambda view: (view.node, view.capability.name) == (node, name)
            )
            return await self._fetch_first(capability, [view for view in views if view.node == node])
        asked: list[OfferView] = []
        offers = await self._list_beside(asked, capability, once=name)
        while True:
            try:
                return await self._fetch_first(capability, offers)
            except HearthNetError:
                # Others may offer the name without its contract, and be the first to answer.
                asked += offers
                if not offers or len(asked) > MAX_TRIED:
                    raise
                offers = await self._list_beside(asked, capability, once=f"{name} of others")
                if not offers:
                    raise

    async def fetch_all(self, offers: list[OfferView]) -> None:
        """Fetch the contracts of those offers that are not installed; ignore errors.

        A neighbour may offer any number of names and supply no contract, or a wrong one: of each other home
        `MAX_LISTED` are fetched, all together take `LISTING_SECONDS` at most, and those that failed are not
        fetched again for `FAILURE_SECONDS`, or `BUSY_SECONDS` where the provider was busy.
        """
        now, waiting = asyncio.get_running_loop().time(), self._choose(offers)
        places = {view.node: asyncio.Semaphore(_AT_ONCE) for view in waiting.values()}

        async def fetch(offer: _OfferKey, view: OfferView) -> None:
            try:
                async with places[view.node]:
                    await self._fetch(view)
            except ConnectionLost:
                pass  # says nothing about the provider
            except HearthNetError as error:
                seconds = BUSY_SECONDS if error.code in _BUSY else FAILURE_SECONDS
                self._failed[offer] = now + seconds
                _log.info("no contract of %s from %s: %s", view.capability, ids.short_id(view.node), error)
            del waiting[offer]

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LISTING_SECONDS):
                await asyncio.gather(*(fetch(offer, view) for offer, view in waiting.items()))
        self._failed |= dict.fromkeys(waiting, now + BUSY_SECONDS)
        while len(self._failed) > MAX_FAILURES:
            del self._failed[next(iter(self._failed))]

    def _choose(self, offers: list[OfferView]) -> dict[_OfferKey, OfferView]:
        """Return one offer of each process for each contract that a listing fetches.

        They are in one order, so that of each home the same ones are fetched with each listing.
        """
        now, chosen = asyncio.get_running_loop().time(), dict[_OfferKey, OfferView]()
        names: dict[str, set[str]] = {}
        for view in sorted(
            filter(self._may_learn, offers),
            key=lambda view: (str(view.capability), view.node, view.offer.instance),
        ):
            capability = str(view.capability)
            if is_derived(capability) and cached_contract(capability) is not None:
                continue
            offer = (view.node, view.offer.instance, capability)
            listed = names.setdefault(view.node, set())
            if capability in listed or len(listed) < MAX_LISTED or view.node == self._own:
                listed.add(capability)
                if self._failed.get(offer, 0.0) <= now:
                    chosen[offer] = view
        return chosen

    async def _find_own(self, capability: str, name: str) -> Contract:
        """Return the contract of a capability of this node alone, from its service."""
        try:
            return await self._fetch_first(capability, await self._list_offers(capability))
        except HearthNetError as error:
            if error.code != "not_found":
                raise
            refused = _refused_package(name)
            if refused is None:
                claims = await self._list_offers(
                    None, lambda view: plain_name(view.capability.name) == name, once=name
                )
                refused = other_claims(capability, claims)
            raise refused or error from error

    async def _list_beside(self, asked: list[OfferView], capability: str, *, once: str) -> list[OfferView]:
        """Return offers of `capability` beside those in `asked`."""
        name, known = capability.partition("@")[0], {view.key for view in asked}
        offers = await self._list_offers(
            capability, lambda view: view.capability.name == name and view.key not in known, once=once
        )
        return [view for view in offers if view.key not in known]

    def _known(self, capability: str) -> Contract | None:
        """Return the learned contract of `capability`, if it still counts."""
        if is_derived(capability):
            return cached_contract(capability)
        try:
            found = contracts().find(*split_name(capability))
        except HearthNetError:
            return None
        if not contracts().has_learned(found.capability):
            return found
        origin = self._origins.get(found.id)
        return found if origin is not None and process_lock.lives(self._home, origin) else None

    def _may_learn(self, view: OfferView) -> bool:
        """Return whether the contract of an offer is learned, and from that node."""
        name = view.capability.name
        return is_provider_defined(name) and (view.node == self._own or not is_home_only(name))

    async def _fetch_first(self, capability: str, offers: list[OfferView]) -> Contract:
        """Return the contract of the first of `offers` whose provider supplies a valid one.

        This node's offers come first, then the newest version.

        Raises:
            HearthNetError: `not_found` if there is none; otherwise the error of the last one that was asked.
        """
        near = contracts().nearest(capability)
        hint = f"did you mean {' or '.join(near)}?" if near else "see: hearthnet caps"
        error = HearthNetError("not_found", f"nobody offers {capability} now; {hint}", alt=near)
        # One offer of each home, so that no other home is kept from being asked.
        found = sorted(filter(self._may_learn, offers), key=self._rank)
        first = {view.node: view for view in reversed(found)}
        for view in sorted(first.values(), key=self._rank)[:MAX_TRIED]:
            try:
                return await self._fetch(view)
            except HearthNetError as caught:
                error = caught
        raise error

    def _rank(self, view: OfferView) -> tuple[Any, ...]:
        _, major, minor = view.capability
        # A derived version has no order; that of an author has.
        version = str(view.capability) if is_derived(view.capability.name) else (-major, -minor)
        return view.node != self._own, version, view.key

    async def _fetch(self, view: OfferView) -> Contract:
        """Return the contract of an offer.

        Raises:
            HearthNetError: The provider's error; `bad_request` if it supplies another contract;
                `invalid_signature` if the key in the name did not sign it.
        """
        capability, instance = str(view.capability), view.offer.instance
        there = cached_contract(capability)
        current = is_derived(capability) or self._origins.get(capability) == instance
        current = current or not contracts().has_learned(view.capability)
        if there is None or not current:
            body: dict[str, Any] = {"params": {}, "input": {"capability": capability}}
            reply = await self._ask(CONTRACT, body, node=view.node, instance=instance)
            there = _verified(reply.output, capability)
            contracts().learn(there, "" if view.node == self._own else view.node)
            if not is_derived(capability):
                self._origins[capability] = instance
        return there


def _verified(output: Any, capability: str) -> Contract:
    """Return the contract in an answer.

    Raises:
        HearthNetError: As `ContractLearner._fetch`; `bad_request` for whatever else fails.
    """
    try:
        contract = checked(output["contract"], capability)
        if plain_name(contract.name):
            check_shared(contract, output.get("signed"))
    except HearthNetError:
        raise
    except Exception as error:
        _log.warning("the contract of %s cannot be read", capability, exc_info=True)
        raise HearthNetError("bad_request", f"the contract of {capability} cannot be read") from error
    return contract
