"""The home that a call is for.

The tool of a contract that providers define is of one node, which is settled when the tool is declared: any
other member can offer the same contract. An effect on a single node is for this home where it offers the
capability, else for the only other one that does. That is settled before a person decides, who sees it: a
call that was approved for one home never runs at another.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

import msgspec

from hearthnet.agent.tools.toolbox import BoundTool, Tool
from hearthnet.agent.tools.types import ToolDefinition
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.contracts.namespaces import is_provider_defined
from hearthnet.contracts.registry import contracts
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.authorization.approval import ANY_PROVIDER
from hearthnet.trust.community.names import with_id

_MOST_NAMED: Final = 8
"""Maximum of homes that an error names."""


class Offers(Protocol):
    """The present offers of a capability, as `Bus.offers` returns them."""

    async def offers(self, capability: str | None = None) -> list[OfferView]: ...


def is_for_one_home(tool: Tool) -> bool:
    """Return whether a call of `tool` is for a single node, which the person who approves it sees."""
    if not isinstance(tool, BoundTool):
        return False
    return bool(tool.provider) or (tool.contract.side_effects and not tool.contract.is_shared_effect)


async def provider_of(tool: BoundTool, bus: Offers, own: str, peer: Any = None) -> str:
    """Return the node that an approval of `tool` is for, `*` for an effect on a log that all share.

    `own` is this node; `peer` has the roster with the names of homes. A tool that was declared for a node is
    for that one, whatever others offer.

    Raises:
        HearthNetError: `not_found` if no node offers the capability; `bad_request` if several other homes
            offer it.
    """
    if tool.provider:
        return tool.provider
    if not is_for_one_home(tool):
        return ANY_PROVIDER
    if is_provider_defined(tool.contract.name):
        return own
    return only_provider(tool.capability, await bus.offers(tool.capability), own, peer)


def only_provider(capability: str, offers: Iterable[OfferView], own: str, peer: Any = None) -> str:
    """Return this node `own` where it is among `offers` of `capability`, else the only other one.

    Raises:
        HearthNetError: As `provider_of`.
    """
    nodes = sorted({view.node for view in offers})
    if own in nodes:
        return own
    if len(nodes) == 1:
        return nodes[0]
    if not nodes:
        raise HearthNetError("not_found", f"nobody offers {capability} now; try again later")
    homes = ", ".join(home_of(peer, node) for node in nodes[:_MOST_NAMED])
    raise HearthNetError(
        "bad_request",
        f"cannot tell for which home {capability} is meant: this one does not offer it, and these do: "
        f"{homes}; declare the tool with one of them as its provider, or call it there",
        details={"providers": nodes[:_MOST_NAMED]},
    )


def for_home(tool: ToolDefinition, offers: Iterable[OfferView], own: str, node: str = "") -> ToolDefinition:
    """Return `tool` as one of `node`, else of `own` where that offers it, if its effect is on a single home.

    Other tools, and those of which neither offers the capability, are returned unchanged.
    """
    if tool.provider or tool.bound_capability is None or not tool.side_effects:
        return tool
    contract = contracts().find(tool.bound_capability, tool.bound_version)
    if not contract.side_effects or contract.is_shared_effect:
        return tool
    nodes = {view.node for view in offers if view.capability.serves(contract.capability)}
    return msgspec.structs.replace(tool, provider=node or (own if own in nodes else ""))


def home_of(peer: Any, node: str) -> str:
    """Return the name of a home for people: its name in the community and its short id."""
    roster, short = getattr(peer, "roster", None), ids.short_id(node)
    name = "" if roster is None else roster.shown_name(node)
    return with_id(name, node) if name else short
