"""Tools whose contracts came with no installation, such as those of an MCP server.

The descriptions of such tools are words of others: they are bounded here and serve only as descriptions
(decision 0106).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

from hearthnet.agent.tools.types import ToolDefinition
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.contracts.contract import Contract

MOST_DESCRIBED: Final = 2_000
"""The most characters of a description that a model sees."""


class ContractSource(Protocol):
    """The part of the bus that learns contracts."""

    @property
    def peer(self) -> Any: ...
    async def fetch_contract(self, capability: str) -> Contract: ...
    async def offers(self, capability: str | None = None) -> list[OfferView]: ...


async def dynamic_tools(bus: ContractSource, capabilities: Iterable[str]) -> list[ToolDefinition]:
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


def _hidden(contract: Contract) -> frozenset[str]:
    """Return the arguments that the executor fills in."""
    return frozenset({"client_id"} if contract.idempotent == "client_id" else ())


def dynamic_tool(contract: Contract, *, own: bool) -> ToolDefinition:
    """Return the tool that calls `contract`, under the capability's name.

    `own`: this node offers it.
    """
    said = contract.request_schema.get("description")
    description = said if isinstance(said, str) and said.strip() else contract.summary
    return ToolDefinition(
        name=contract.name,
        description=description[:MOST_DESCRIBED],
        parameters_schema=contract.tool_schema(None, _hidden(contract)),
        bound_capability=contract.name,
        bound_version=(contract.major, contract.minor),
        side_effects=contract.side_effects or not own,
    )
