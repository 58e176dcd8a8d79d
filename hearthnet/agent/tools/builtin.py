"""The tools that HearthNet brings, bound to capabilities, and those of them that can be called now.

Their schemas come from the contracts. This module adds what a model needs besides: when to use which tool,
and which fields it does not see. A contract that changes changes its tool. A tool can be called if this
version has its contract and a node offers its capability.

See: docs/protocol/agent.md#tool-definitions, docs/tools.md#the-parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from hearthnet.agent.tools.names import unknown_tool
from hearthnet.agent.tools.types import ToolDefinition
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.registry import contracts
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError


class _Recipe(msgspec.Struct, frozen=True):
    """A tool as it is declared here.

    `hidden` are optional fields that only confuse a model. `everywhere`: it may leave its corpus open, or
    name the home that has it (everybody.py).
    """

    capability: str
    description: str
    hidden: frozenset[str] = frozenset()
    everywhere: bool = False


_CORPUS: Final = {
    "type": "string",
    "pattern": "^[a-z0-9-]{1,64}(@.{1,200})?$",
    "description": "Collection to search, as list_corpora names it; leave it out to search all of them",
}


_RECIPES: Final[dict[str, _Recipe]] = {
    "search_corpus": _Recipe(
        "rag.query@1.0",
        "Searches a collection of documents and returns the passages that fit best, with their titles. Use "
        "it before answering any question of fact. Give the key words of the question, not a sentence.",
        frozenset({"copy_of", "filter", "include_text"}),
        everywhere=True,
    ),
    "list_corpora": _Recipe(
        "rag.list_corpora@1.0",
        "Lists the document collections there are to search, with their size and language.",
    ),
    "list_marketplace": _Recipe(
        "market.list@1.0",
        "Lists what neighbours currently offer, need or announce. Use it to see what is there; to look for "
        "one thing, search instead.",
        frozenset({"since_lamport", "hidden", "muted"}),
    ),
    "search_marketplace": _Recipe(
        "market.search@1.0", "Searches what neighbours currently offer, need or announce, by key words."
    ),
    "market_post": _Recipe(
        "market.post@1.0",
        "Publishes an offer, a request, news or an emergency for all neighbours to read. Use it only when "
        "the user wants something published, in the user's own words. The user is asked before anything "
        "is sent.",
        frozenset({"location"}),
    ),
    "market_update": _Recipe(
        "market.update@1.0",
        "Changes one of the user's own posts, by the event_id that listing or searching shows. Give in "
        "fields only what is to be different, in the user's own words. The user is asked before anything is "
        "sent.",
        frozenset({"expected_lamport"}),
    ),
    "market_expire": _Recipe(
        "market.expire@1.0",
        "Ends one of the user's own posts before its time, by the event_id that listing or searching "
        "shows. The user is asked before anything is sent.",
    ),
    "market_delete": _Recipe(
        "market.delete@1.0",
        "Deletes one of the user's own posts for good, its words too, by the event_id that listing or "
        "searching shows. Use it only when the user wants it deleted; to say that it is settled, end it "
        "instead. The user is asked before anything is sent.",
        frozenset({"all"}),
    ),
    "translate": _Recipe(
        "trans.text@1.0",
        "Translates a text from one language into another. Use it where the user wants a translation, or "
        "cannot read what was found.",
    ),
    "describe_image": _Recipe(
        "img.describe@1.0", "Says what is to be seen in an image that the user has shown or that was found."
    ),
    "transcribe_audio": _Recipe(
        "stt.transcribe@1.0", "Writes down what is said in a recording that the user has given."
    ),
    "find_neighbour": _Recipe(
        "mesh.neighbours@1.0",
        "Lists the computers of the community that are here now, with their names and what they offer.",
    ),
    "mesh_search": _Recipe(
        "mesh.search@1.0",
        "Looks in the inventory of the mesh for capabilities, computers, document collections, models and "
        "tools, by key words. Use it to learn what there is; it does not search inside documents.",
    ),
    "mesh_describe": _Recipe(
        "mesh.describe@1.0",
        "Tells everything known of one capability, computer, document collection or model, and whether the "
        "user may use it. Take the name from mesh_search.",
    ),
    "mesh_relations": _Recipe(
        "mesh.relations@1.0",
        "Lists what one thing of the mesh is tied to: who offers it, who calls it, what it requires. Take "
        "the name from mesh_search.",
    ),
    "mesh_query": _Recipe(
        "mesh.query@1.0",
        "Answers one read-only SQL SELECT over tables about the mesh. Use it to count, compare or join; "
        "write texts as :name and give them in bindings.",
    ),
}
_GENERATED: Final = "client_id"
ALL_BUILTIN: Final = tuple(_RECIPES)
"""The names of all built-in tools, including those without a contract in this version."""


def builtin_names() -> list[str]:
    """Return the names of the built-in tools whose capability has a contract in this version."""
    known = set(contracts().names())
    return [name for name, recipe in _RECIPES.items() if recipe.capability.partition("@")[0] in known]


def builtin_tools(
    names: Iterable[str] | None = None, bound_params: Mapping[str, Mapping[str, Any]] | None = None
) -> list[ToolDefinition]:
    """Return the built-in tools called `names`, or all of them.

    The values in `bound_params[name]` are fixed and hidden from the model.

    Raises:
        HearthNetError: `not_found` for an unknown name, with the nearest ones in `alt`, and for a tool whose
            capability has no contract in this version; `bad_request` for an unknown param.
    """
    fixed = bound_params or {}
    return [_tool(name, dict(fixed.get(name, {}))) for name in (builtin_names() if names is None else names)]


def capability_tool(identifier: str, bound_params: Mapping[str, Any] | None = None) -> ToolDefinition:
    """Return a tool bound to the capability `identifier` and named like it, without version.

    `identifier` is `name` or `name@major.minor`. The values in `bound_params` are fixed.

    Raises:
        HearthNetError: `not_found` for an unknown capability; `schema_mismatch` for an unknown version;
            `bad_request` for an unknown param.
    """
    name = identifier.partition("@")[0]
    contract = contracts().find(identifier)
    return bound_tool(name, contract.summary, contract, dict(bound_params or {}))


def _tool(name: str, bound: dict[str, Any]) -> ToolDefinition:
    recipe = _RECIPES.get(name)
    if recipe is None:
        raise unknown_tool(name, _RECIPES)
    if name not in builtin_names():
        raise HearthNetError(
            "not_found",
            f"the tool {name} needs {recipe.capability}, and this version of HearthNet has no contract for "
            "that; leave the tool out",
        )
    tool = bound_tool(name, recipe.description, contracts().get(recipe.capability), bound, recipe.hidden)
    schema = tool.parameters_schema
    if not recipe.everywhere or "corpus" not in schema["properties"]:
        return tool
    required = [one for one in schema["required"] if one != "corpus"]
    open_schema = {**schema, "properties": {**schema["properties"], "corpus": _CORPUS}, "required": required}
    return msgspec.structs.replace(tool, parameters_schema=open_schema)


def bound_tool(
    name: str,
    description: str,
    contract: Contract,
    bound: dict[str, Any],
    hidden: frozenset[str] = frozenset(),
) -> ToolDefinition:
    """Return the tool that calls `contract`, without the arguments that are hidden, bound or generated."""
    generated = frozenset({_GENERATED} if contract.idempotent == "client_id" else ())
    return ToolDefinition(
        name=name,
        description=description,
        parameters_schema=contract.tool_schema(bound, hidden - bound.keys() | generated),
        bound_capability=contract.name,
        bound_version=(contract.major, contract.minor),
        side_effects=contract.side_effects,
        bound_params=bound,
    )


UNAVAILABLE: Final = "tool_unavailable"
"""The code of the notice about a tool that was requested by name and cannot be called."""


class ToolStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A built-in tool in the present mesh.

    `nodes` offer its capability; `reason` says why it is not available.
    """

    name: str
    description: str
    capability: str
    side_effects: bool
    available: bool
    nodes: list[str]
    reason: str

    @property
    def notice(self) -> str:
        """The text for a run that named this tool although it cannot be called."""
        return f"the tool {self.name} is not available: {self.reason}"


class Availability(NamedTuple):
    """The tools of a set that can be called now, and the others."""

    tools: list[ToolDefinition]
    missing: list[ToolStatus]


def listed_tools(offers: Iterable[OfferView]) -> list[ToolStatus]:
    """Return all built-in tools, available or not; `offers` are all offers of the mesh."""
    views = list(offers)
    return [_listed(name, views) for name in ALL_BUILTIN]


def available_tools(
    names: Sequence[str],
    offers: Iterable[OfferView],
    bound_params: Mapping[str, Mapping[str, Any]] | None = None,
) -> Availability:
    """Divide the tools called `names` into those that can be called now and the others.

    The former are made by `builtin_tools`, whose errors are raised.
    """
    views = list(offers)
    listed = [_listed(name, views) for name in names if name in ALL_BUILTIN]
    missing = [tool for tool in listed if not tool.available]
    absent = {tool.name for tool in missing}
    return Availability(builtin_tools([name for name in names if name not in absent], bound_params), missing)


def _listed(name: str, offers: Sequence[OfferView]) -> ToolStatus:
    recipe = _RECIPES[name]
    capability = parse_capability(recipe.capability)
    nodes = sorted({view.node for view in offers if view.capability.serves(capability)})
    known = name in builtin_names()
    reason = "" if known and nodes else f"nobody offers {capability.name} now"
    if nodes and not known:
        reason = f"this version of HearthNet has no contract for {capability}"
    return ToolStatus(
        name=name,
        description=recipe.description,
        capability=str(capability),
        side_effects=known and builtin_tools([name])[0].side_effects,
        available=not reason,
        nodes=nodes,
        reason=reason,
    )
