"""`mesh.relations`: relations of one thing, step by step. Pure.

node        offers          capability
node        calls           capability   calls that the calling node made itself
capability  calls           capability   within this node, shown to this node only
capability  requires        level        more than any member has, or only its own node
capability  bound_by_tool   tool
node        trusts          node         promoted it to trusted or anchor, by the roster
node        issued_token_to node         tokens of the calling node that it used itself
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from hearthnet_mesh.describe import Thing
from hearthnet_mesh.inventory import known_tools
from hearthnet_mesh.snapshot import Snapshot, find_contract, trust_of
from hearthnet_mesh.trace_queries import ObservedCall
from hearthnet_mesh.visibility import Viewer

MOST_EDGES: Final = 500
_MEMBER: Final = "member"


class Edge(NamedTuple):
    """One relation."""

    start: str
    relation: str
    end: str


def edges(
    snapshot: Snapshot, viewer: Viewer, calls: Iterable[ObservedCall], chains: Iterable[tuple[str, str]]
) -> list[Edge]:
    """Return every relation visible to `viewer`, in order."""
    found = {Edge(one.caller, "calls", one.capability) for one in calls}
    found |= {Edge(above, "calls", below) for above, below in chains}
    found |= set(_offers(snapshot, viewer)) | set(_tools()) | set(_trusts(snapshot)) | set(_issued(viewer))
    return sorted(found)


def neighbours_of(every: list[Edge], thing: Thing, depth: int) -> dict[str, Any]:
    """Return the output of `mesh.relations`: relations up to `depth` steps away.

    The nearest come first.
    """
    reached, frontier = {thing.name}, _starts(thing)
    found: dict[Edge, None] = {}
    for _ in range(depth):
        reached |= frontier
        near = [edge for edge in every if edge.start in frontier or edge.end in frontier]
        found.update(dict.fromkeys(near))
        frontier = {end for edge in near for end in (edge.start, edge.end)} - reached
    shown = list(found)[:MOST_EDGES]
    return {
        "edges": [{"from": edge.start, "relation": edge.relation, "to": edge.end} for edge in shown],
        "truncated": len(found) > MOST_EDGES,
    }


def _starts(thing: Thing) -> set[str]:
    """Return the first names of the walk: the thing itself, or the capabilities of its offers."""
    if thing.kind in ("capability", "node", "tool"):
        return {thing.name}
    return {str(view.capability) for view in thing.offers}


def _offers(snapshot: Snapshot, viewer: Viewer) -> Iterator[Edge]:
    for view in snapshot.visible(viewer):
        capability = str(view.capability)
        yield Edge(view.node, "offers", capability)
        trust = trust_of(view)
        if trust != _MEMBER:
            yield Edge(capability, "requires", trust)


def _tools() -> Iterator[Edge]:
    for tool in known_tools():
        contract = find_contract(tool.bound_capability or "")
        if contract is not None:
            yield Edge(contract.id, "bound_by_tool", tool.name)


def _trusts(snapshot: Snapshot) -> Iterator[Edge]:
    for node, standing in snapshot.roster.folded.members.items():
        if standing.sponsor:
            yield Edge(standing.sponsor, "trusts", node)


def _issued(viewer: Viewer) -> Iterator[Edge]:
    """Yield the relation of this call's token; others are known only to issuer and holder."""
    if viewer.claims is not None and viewer.claims.iss != viewer.caller:
        yield Edge(viewer.claims.iss, "issued_token_to", viewer.caller)
