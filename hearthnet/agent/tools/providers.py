"""The home that a call is for.

The tool of a contract that providers define is of one node, which is settled when the tool is declared: any
other member can offer the same contract. An effect on a single node is for the home that its call names, else
for this home where it offers the capability, else for the only other one that does. That is settled before a
person decides, who sees it: a call that was approved for one home never runs at another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec

from hearthnet.agent.tools.result_text import INVALID, error_text
from hearthnet.agent.tools.toolbox import HOME, BoundTool, Prepared, Tool
from hearthnet.agent.tools.types import ToolDefinition
from hearthnet.bus.routing.named_homes import AT, home_called
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.routing.routing_table import same_schema
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.namespaces import is_provider_defined
from hearthnet.contracts.registry import contracts
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.authorization.approval import ANY_PROVIDER
from hearthnet.trust.community.names import with_id

_MOST_NAMED: Final = 8
"""Maximum of homes that an error names."""
_HOME_SCHEMA: Final = {
    "type": "string",
    "minLength": 1,
    "maxLength": 200,
    "description": "Name or id of the home that carries it out, where the user names one; leave it out else",
}


class Offers(Protocol):
    """The present offers of a capability, as `Bus.offers` returns them."""

    async def offers(self, capability: str | None = None) -> list[OfferView]: ...


def is_for_one_home(tool: Tool) -> bool:
    """Return whether a call of `tool` is for a single node, which the person who approves it sees."""
    if not isinstance(tool, BoundTool):
        return False
    return bool(tool.provider) or (tool.contract.side_effects and not tool.contract.is_shared_effect)


async def provider_of(tool: BoundTool, bus: Offers, own: str, peer: Any = None, home: str = "") -> str:
    """Return the node that an approval of `tool` is for, `*` for an effect on a log that all share.

    `own` is this node; `peer` has the roster with the names of homes; `home` is the one that the call names.
    A tool that was declared for a node is else for that one, whatever others offer.

    Raises:
        HearthNetError: `not_found` if no node offers the capability, or not the named one; `bad_request` if
            several other homes offer it and none is named, or several are called so.
    """
    if home:
        return _named_provider(tool.contract, await bus.offers(tool.capability), home, peer)
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
        f"{homes}; name one of them as the home, or declare the tool with it as its provider",
        details={"providers": nodes[:_MOST_NAMED]},
    )


def home_in(tool: Tool, arguments: Mapping[str, Any]) -> str:
    """Return the home that a call of `tool` names in its flat arguments, empty where it names none."""
    named = arguments.get(HOME, "") if isinstance(tool, BoundTool) and tool.names_home else ""
    return named if isinstance(named, str) else ""


def prepare_edited(
    tool: Tool, shown: Mapping[str, Any], arguments: dict[str, Any], client_id: str
) -> Prepared | str:
    """Return the call for `arguments`, to which a person has changed those `shown`, or why it is not valid.

    The home stays: it is settled and shown before the decision, and the digest does not cover it, so that an
    edit could approve a home that was not shown.
    """
    prepared = tool.prepare(arguments, client_id)
    if isinstance(prepared, str) or home_in(tool, arguments) == home_in(tool, shown):
        return prepared
    return error_text(
        INVALID, f"/{HOME}: the home stays the one that was shown; say no to ask for another one"
    )


def _named_provider(contract: Contract, offers: Iterable[OfferView], home: str, peer: Any) -> str:
    """Return the node called `home`, where it offers the very contract whose call was prepared."""
    node = home_called(peer.roster, home)
    nodes = sorted({view.node for view in offers if same_schema(contract, view)})
    if node in nodes:
        return node
    others = ", ".join(home_of(peer, one) for one in nodes[:_MOST_NAMED]) or "nobody"
    raise HearthNetError(
        "not_found",
        f"{home_of(peer, node)} does not offer {contract.capability} now; it is offered by: {others}",
        details={"providers": nodes[:_MOST_NAMED]},
    )


def with_home_argument(tool: ToolDefinition, *, required: bool = False) -> ToolDefinition:
    """Return `tool` with the argument by which a call names its home, unless it has one of that name."""
    schema = tool.parameters_schema
    if HOME in schema["properties"]:
        return tool
    named = {**schema, "properties": {**schema["properties"], HOME: _HOME_SCHEMA}}
    if required:
        named["required"] = [*schema.get("required", ()), HOME]
    return msgspec.structs.replace(tool, parameters_schema=named)


def at_named_home(tool: ToolDefinition, peer: Any) -> ToolDefinition:
    """Return a tool whose bound corpus names its home, `manuals@Kitchen`, as one of that home; else `tool`.

    Raises as `home_called`.
    """
    corpus = tool.bound_params.get("corpus")
    if tool.bound_capability is None or tool.side_effects or not isinstance(corpus, str) or AT not in corpus:
        return tool
    name, _, home = corpus.partition(AT)
    bound = {**tool.bound_params, "corpus": name}
    return msgspec.structs.replace(tool, bound_params=bound, provider=home_called(peer.roster, home))


def schema_without_home(tool: BoundTool) -> dict[str, Any]:
    """Return the schema of a tool's arguments as it is where no other home offers it."""
    schema = tool.definition.parameters_schema
    if not tool.names_home:
        return schema
    left = {name: one for name, one in schema["properties"].items() if name != HOME}
    required = [one for one in schema.get("required", ()) if one != HOME]
    return {**schema, "properties": left, "required": required}


def for_home(tool: ToolDefinition, offers: Iterable[OfferView], own: str, node: str = "") -> ToolDefinition:
    """Return `tool` as one of `node`, else of `own` where that offers it, if its effect is on a single home.

    Without `node`, calls may name another home where others offer it, too. Tools without such an effect, and
    those whose capability is not offered, are returned unchanged.
    """
    if tool.provider or tool.bound_capability is None or not tool.side_effects:
        return tool
    contract = contracts().find(tool.bound_capability, tool.bound_version)
    if not contract.side_effects or contract.is_shared_effect:
        return tool
    nodes = {view.node for view in offers if view.capability.serves(contract.capability)}
    if nodes - {own} and not node:
        tool = with_home_argument(tool)
    return msgspec.structs.replace(tool, provider=node or (own if own in nodes else ""))


def home_of(peer: Any, node: str) -> str:
    """Return the name of a home for people: its name in the community and its short id."""
    roster, short = getattr(peer, "roster", None), ids.short_id(node)
    name = "" if roster is None else roster.shown_name(node)
    return with_id(name, node) if name else short
