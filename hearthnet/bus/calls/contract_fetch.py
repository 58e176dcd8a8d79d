"""Learning of contracts that are not installed, from the processes that offer them.

Under `experimental.` the offer names its contract by a version that is derived from the whole contract
(contracts/dynamic.py), so that no provider can supply another one; this node's offer comes first. Other names
are learned from this node's own processes only. Their versions are the author's, who may change a contract
under one: what a process supplied counts while that process lives.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from hearthnet.bus.calls.unary import Reply
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.contracts import Contract, contracts, is_told
from hearthnet.contracts.dynamic import checked, is_derived
from hearthnet.contracts.namespaces import is_home_only
from hearthnet.core import process_lock
from hearthnet.core.capability_name import split_name
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home

TELL: Final = "node.contract@1.0"
Ask = Callable[..., Awaitable[Reply]]
"""`Bus.call`."""


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


class ContractLearner:
    """The contracts that one connection has learned, and the processes that supplied them."""

    def __init__(self, home: Home, own: str, ask: Ask) -> None:
        self._home = home
        self._own = own
        self._ask = ask
        self._origins: dict[str, str] = {}
        """The instance that supplied a contract of this node's own, by `name@major.minor`."""

    def known(self, capability: str) -> Contract | None:
        """Return the learned contract of `capability`, if it still counts."""
        if is_derived(capability):
            return cached_contract(capability)
        try:
            found = contracts().find(*split_name(capability))
        except HearthNetError:
            return None
        if not contracts().has_learned(found.capability):
            return found  # an installed package has it
        origin = self._origins.get(found.id)
        return found if origin is not None and process_lock.lives(self._home, origin) else None

    def may_learn(self, view: OfferView) -> bool:
        """Return whether the contract of an offer is learned, and from that node."""
        name = view.capability.name
        return is_told(name) and (view.node == self._own or not is_home_only(name))

    def first_provider(self, capability: str, offers: list[OfferView]) -> OfferView:
        """Return the offer whose contract is learned: this node's first, then the newest version.

        Raises:
            HearthNetError: `not_found` if there is none.
        """
        found = [view for view in offers if self.may_learn(view)]
        if not found:
            near = contracts().nearest(capability)
            hint = f"did you mean {' or '.join(near)}?" if near else "see: hearthnet caps"
            raise HearthNetError("not_found", f"nobody offers {capability} now; {hint}", alt=near)
        return min(found, key=self._rank)

    def _rank(self, view: OfferView) -> tuple[Any, ...]:
        _, major, minor = view.capability
        # A derived version has no order; that of an author has.
        version = str(view.capability) if is_derived(view.capability.name) else (-major, -minor)
        return view.node != self._own, version, view.key

    async def fetch(self, view: OfferView) -> Contract:
        """Return the contract of an offer.

        Raises:
            HearthNetError: The provider's error; `bad_request` if it supplies another contract.
        """
        capability, instance = str(view.capability), view.offer.instance
        there = cached_contract(capability)
        current = is_derived(capability) or self._origins.get(capability) == instance
        if there is None or not current:
            body: dict[str, Any] = {"params": {}, "input": {"capability": capability}}
            reply = await self._ask(TELL, body, node=view.node, instance=instance)
            there = checked(reply.output["contract"], capability)
            contracts().learn(there)
            self._origins[capability] = instance
        return there
