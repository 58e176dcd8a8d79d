"""Tools whose contracts came with no installation, such as those of an MCP server.

The descriptions of such tools are words of others: they are bounded here and serve only as descriptions
(decision 0106).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from hearthnet.agent.tools.builtin import bound_tool
from hearthnet.agent.tools.types import ToolDefinition
from hearthnet.contracts.contract import Contract

if TYPE_CHECKING:
    from hearthnet.bus.bus import Bus

MOST_DESCRIBED: Final = 2_000
"""The most characters of a description that a model sees."""


async def dynamic_tools(bus: Bus, capabilities: Iterable[str]) -> list[ToolDefinition]:
    """Return the tools that call `capabilities` (names that are not installed, version optional).

    A call of another node's tool always needs a decision, whatever its contract declares: that it only reads
    is the statement of its owner.

    Raises:
        HearthNetError: `not_found` if no node offers one of them.
    """
    tools = []
    for name in capabilities:
        contract = await bus.fetch_contract(name)
        offers = await bus.offers(contract.id)
        own = any(view.node == bus.peer.node_id for view in offers)
        tools.append(dynamic_tool(contract, own=own))
    return tools


def dynamic_tool(contract: Contract, *, own: bool) -> ToolDefinition:
    """Return the tool that calls `contract`, under the capability's name.

    `own`: this node offers it.
    """
    declared = contract.request_schema.get("description")
    description = declared if isinstance(declared, str) and declared.strip() else contract.summary
    tool = bound_tool(contract.name, description[:MOST_DESCRIBED], contract, {})
    return tool if own else msgspec.structs.replace(tool, side_effects=True)
