"""Learning the contract of a capability that came with no installation: from the process that offers it.

The offer says which contract it is of, by a version that follows from all that the contract says
(contracts/told.py), so that nobody can tell another one. The own node's offer comes first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from hearthnet.bus.calls import Reply
from hearthnet.bus.registry import OfferView
from hearthnet.contracts import Contract, contracts
from hearthnet.contracts.told import checked
from hearthnet.errors import HearthNetError
from hearthnet.types import split_name

TELL: Final = "node.contract@1.0"
Ask = Callable[..., Awaitable[Reply]]
"""`Bus.call`."""


def known(capability: str) -> Contract | None:
    """What was learned of exactly `name@major.minor`; None for a bare name, and where nothing was."""
    name, version = split_name(capability)
    if version is None:
        return None
    try:
        return contracts().find(name, version)
    except HearthNetError:
        return None


def first(capability: str, offers: list[OfferView], own: str) -> OfferView:
    """The offer whose contract is learned; `not_found` where there is none."""
    if not offers:
        raise HearthNetError("not_found", f"nobody offers {capability} now; see: hearthnet caps")
    return min(offers, key=lambda view: (view.node != own, str(view.capability), view.key))


async def learn(view: OfferView, ask: Ask) -> Contract:
    """The contract of an offer. Raises what its provider raises, and `bad_request` for another contract."""
    capability = str(view.capability)
    there = known(capability)
    if there is None:
        body: dict[str, Any] = {"params": {}, "input": {"capability": capability}}
        reply = await ask(TELL, body, node=view.node, instance=view.offer.instance)
        there = checked(reply.output["contract"], capability)
        contracts().learn(there)
    return there
