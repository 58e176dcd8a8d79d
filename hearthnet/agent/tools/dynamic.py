"""Tools whose contracts came with no installation, such as those of an MCP server.

The descriptions of such tools are words of others: they are bounded here and serve only as descriptions
(decision 0106).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from hearthnet.agent.tools.builtin import bound_tool
from hearthnet.agent.tools.providers import home_of, only_provider, with_home_argument
from hearthnet.agent.tools.types import ToolDefinition
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.namespaces import is_home_only
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError

if TYPE_CHECKING:
    from hearthnet.bus.bus import Bus
    from hearthnet.bus.routing.offer_registry import OfferView

_AT_ONCE: Final = 8
"""Maximum of tools whose contracts are fetched at a time."""
MOST_DESCRIBED: Final = 2_000
"""The most characters of a description that a model sees."""


async def dynamic_tools(
    bus: Bus, capabilities: Iterable[str], providers: Mapping[str, str] | None = None
) -> list[ToolDefinition]:
    """Return the tools that call `capabilities` (names that are not installed, version optional).

    Each is a tool of one node: of the one that `providers` names for it, else of this node where it offers
    the capability, else of the only other one that does. Where none is named and several offer it, each call
    of an effect may name its home; it has to where several others offer one and the same contract. A call of
    another node's tool always needs a decision, whatever its contract declares: that it only reads is the
    statement of its owner.

    Raises:
        HearthNetError: `not_found` if no node, or not the named one, offers one of them; `bad_request` if
            several other nodes do and none is named, and if the named one is no node id.
    """
    names = list(capabilities)
    listed = await bus.offers() if len(names) > 1 else []
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def tool(name: str) -> ToolDefinition:
        async with at_once:
            return await _tool_of(bus, name, (providers or {}).get(name, ""), listed)

    tools = [asyncio.create_task(tool(name)) for name in names]
    try:
        return await asyncio.gather(*tools)
    finally:
        for one in tools:
            one.cancel()


async def _tool_of(bus: Bus, name: str, node: str, listed: Sequence[OfferView]) -> ToolDefinition:
    """Return the tool of `node`, or of the only one that is meant where it is empty.

    Offers that are not among those `listed` just now are looked for.
    """
    own = bus.peer.node_id
    if is_home_only(name):
        return dynamic_tool(await bus.fetch_contract(name, listed=listed), own=True, provider=own)
    if node:
        ids.public_key(node)
    offers = [view for view in listed if view.is_called(name)]
    if not offers or (node and node not in {view.node for view in offers}):
        offers = await bus.offers(name)
    if node and node not in {view.node for view in offers}:  # its contract may be known from another node
        home = home_of(bus.peer, node)
        raise HearthNetError("not_found", f"{home} does not offer {name} now; try again later")
    if node:
        return dynamic_tool(
            await bus.fetch_contract(name, node=node, listed=offers), own=node == own, provider=node
        )
    nodes, hashes = {view.node for view in offers}, {view.offer.schema_hash for view in offers}
    is_open = own not in nodes and len(nodes) > 1 and len(hashes) == 1
    node = min(nodes) if is_open else only_provider(name, offers, own, bus.peer)
    contract = await bus.fetch_contract(name, node=node, listed=offers)
    if is_open and not contract.side_effects:
        only_provider(name, offers, own, bus.peer)
    tool = dynamic_tool(contract, own=node == own, provider="" if is_open else node)
    if len(nodes) == 1 or not contract.side_effects:
        return tool
    return with_home_argument(tool, required=is_open)


def dynamic_tool(contract: Contract, *, own: bool, provider: str = "") -> ToolDefinition:
    """Return the tool that calls `contract` at `provider`, under the capability's name.

    `own`: that is this node.
    """
    declared = contract.request_schema.get("description")
    description = declared if isinstance(declared, str) and declared.strip() else contract.summary
    tool = bound_tool(contract.name, description[:MOST_DESCRIBED], contract, {})
    return msgspec.structs.replace(tool, provider=provider, side_effects=tool.side_effects or not own)
