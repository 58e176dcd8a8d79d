"""Learning of contracts that are not installed, from the processes that offer them.

The offer names its contract by a version that is derived from the whole contract (contracts/dynamic.py), so
that no provider can supply another one. This node's offer comes first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from hearthnet.bus.calls.unary import Reply
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.contracts import Contract, contracts
from hearthnet.contracts.dynamic import checked
from hearthnet.core.capability_name import split_name
from hearthnet.core.errors import HearthNetError

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


def first_provider(capability: str, offers: list[OfferView], own: str) -> OfferView:
    """Return the offer whose contract is learned.

    Raises:
        HearthNetError: `not_found` if there is none.
    """
    if not offers:
        raise HearthNetError("not_found", f"nobody offers {capability} now; see: hearthnet caps")
    return min(offers, key=lambda view: (view.node != own, str(view.capability), view.key))


async def fetch_contract(view: OfferView, ask: Ask) -> Contract:
    """Return the contract of an offer.

    Raises:
        HearthNetError: The provider's error; `bad_request` if it supplies another contract.
    """
    capability = str(view.capability)
    there = cached_contract(capability)
    if there is None:
        body: dict[str, Any] = {"params": {}, "input": {"capability": capability}}
        reply = await ask(TELL, body, node=view.node, instance=view.offer.instance)
        there = checked(reply.output["contract"], capability)
        contracts().learn(there)
    return there
