"""Tools whose contracts came with no installation, such as those of an MCP server (decision 0106).

What such a tool says of itself are the words of others: bounded here, and never more than a description.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

from hearthnet.bus.registry import OfferView
from hearthnet.contracts import Contract
from hearthnet.tools.types import ToolDefinition

MOST_DESCRIBED: Final = 2_000
"""Characters of a description that a model is shown."""


class Learning(Protocol):
    """The part of the bus that is asked."""

    @property
    def peer(self) -> Any: ...
    async def learn(self, capability: str) -> Contract: ...
    async def offers(self, capability: str | None = None) -> list[OfferView]: ...


async def told_tools(bus: Learning, capabilities: Iterable[str]) -> list[ToolDefinition]:
    """The tools that call `capabilities` (`experimental.` names, with or without version).

    Another node's tool is always asked about, whatever it says of itself: that it only reads is its owner's
    word. Raises `not_found` for what nobody offers.
    """
    tools = []
    for name in capabilities:
        contract = await bus.learn(name)
        offers = await bus.offers(contract.id)
        own = any(view.node == bus.peer.node_id for view in offers)
        tools.append(told_tool(contract, own=own))
    return tools


def told_tool(contract: Contract, *, own: bool) -> ToolDefinition:
    """The tool that calls `contract`, under the capability's name; `own`: this node offers it."""
    said = contract.request_schema.get("description")
    description = said if isinstance(said, str) and said.strip() else contract.summary
    return ToolDefinition(
        name=contract.name,
        description=description[:MOST_DESCRIBED],
        parameters_schema=contract.tool_schema(None, frozenset()),
        bound_capability=contract.name,
        bound_version=(contract.major, contract.minor),
        side_effects=contract.side_effects or not own,
    )
