"""The mesh service: information about the mesh, limited to what the caller may see.

See: docs/mesh.md.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Final

from hearthnet import Call, NodeContext, Reply, Service, capability
from hearthnet.core import parse_capability
from hearthnet_mesh import describe as describing
from hearthnet_mesh import inventory, trace_queries
from hearthnet_mesh import relations as relating
from hearthnet_mesh.query import sandbox, views
from hearthnet_mesh.schemas import (
    DescribeInput,
    NeighboursInput,
    QueryInput,
    RelationsInput,
    SearchInput,
)
from hearthnet_mesh.snapshot import Snapshot, corpus_of, trust_of
from hearthnet_mesh.sources import CachedAnswer, Gathered, Sources
from hearthnet_mesh.visibility import HOME, Viewer

if TYPE_CHECKING:
    from hearthnet_mesh.query.validator import Checked

_AT_ONCE: Final = 2
"""Queries that run at once; each of them may use all memory reserved for queries."""
_OF_CALLS: Final = frozenset({"calls", "runs"})
_LISTED: Final = {
    "posts": ("market.list@1.0", ""),
    "corpora": ("rag.list_corpora@1.0", "name"),
    "documents": ("rag.list_documents@1.0", "corpus"),
}
"""Views of what other services list: the capability that lists it, and the column of the corpus."""


class MeshService(Service):
    """Search, description, relations and SQL queries of the mesh."""

    name: ClassVar[str] = "mesh"

    def __init__(self) -> None:
        super().__init__()
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def start(self, node: NodeContext) -> None:
        """Prepare the sources; data is fetched when a call needs it."""
        self._node = node
        self._sources = Sources(node.bus, node.home)

    @capability("mesh.search@1.0")
    async def search(self, call: Call[Any, SearchInput]) -> Reply:
        """Return things that share words with the query."""
        wanted = call.input
        found = inventory.items(await self._sources.snapshot.get(), self._viewer(call))
        return Reply(inventory.search(found, wanted.query, wanted.kind, wanted.limit))

    @capability("mesh.describe@1.0")
    async def describe(self, call: Call[Any, DescribeInput]) -> Reply:
        """Return all information about one thing."""
        snapshot, viewer = await self._sources.snapshot.get(), self._viewer(call)
        await self._node.bus.fetch_contracts(
            [view for view in snapshot.visible(viewer) if view.is_called(call.input.name)]
        )
        thing = describing.find(snapshot, viewer, call.input.name)
        known, every = await self._relations(viewer)
        tied = relating.neighbours_of(every, thing, 1)
        return Reply(
            describing.describe(snapshot, viewer, thing, trace_queries.health(known), len(tied["edges"]))
        )

    @capability("mesh.relations@1.0")
    async def relations(self, call: Call[Any, RelationsInput]) -> Reply:
        """Return the relations of one thing."""
        viewer = self._viewer(call)
        thing = describing.find(await self._sources.snapshot.get(), viewer, call.input.name)
        _, every = await self._relations(viewer)
        return Reply(relating.neighbours_of(every, thing, call.input.depth))

    @capability("mesh.query@1.0")
    async def query(self, call: Call[Any, QueryInput]) -> Reply:
        """Run one checked SELECT in an isolated database of the rows visible to the caller."""
        wanted = call.input
        checked = await asyncio.to_thread(_checked, wanted)
        world = await self._world(self._viewer(call), checked.views)
        async with self._places:
            result = await asyncio.to_thread(_run, wanted, checked, world)
        missing = [world.posts, world.corpora, world.documents]
        return Reply(
            {
                "columns": result.columns,
                "rows": result.rows,
                "truncated": result.truncated,
                "incomplete": sorted({line for one in missing for line in one.missing}),
            }
        )

    @capability("mesh.neighbours@1.0")
    async def neighbours(self, call: Call[Any, NeighboursInput]) -> Reply:
        """Return the members, and which of them are online."""
        snapshot = await self._sources.snapshot.get()
        return Reply(snapshot.neighbours(self._viewer(call), online_only=call.input.online_only))

    def _viewer(self, call: Call[Any, Any]) -> Viewer:
        peer = self._node.bus.peer
        level = peer.roster.level(call.principal.partition("/")[0])
        return Viewer(call.caller, call.principal, level, peer.node_id, call.claims)

    async def _relations(
        self, viewer: Viewer
    ) -> tuple[list[trace_queries.ObservedCall], list[relating.Edge]]:
        """Return the calls that the viewer made, and every relation that it may see."""
        snapshot = await self._sources.snapshot.get()
        steps = await self._sources.steps.get() if viewer.is_node else []
        known = trace_queries.calls(steps, viewer)
        return known, relating.edges(snapshot, viewer, known, trace_queries.call_edges(steps, viewer))

    async def _world(self, viewer: Viewer, wanted: frozenset[str]) -> views.World:
        """Fetch the data of the views of a query that the caller may see."""
        sources = self._sources
        steps = await sources.steps.get() if viewer.is_node and wanted & _OF_CALLS else []
        return views.World(
            snapshot=await sources.snapshot.get(),
            viewer=viewer,
            calls=tuple(trace_queries.calls(steps, viewer)),
            posts=await self._listed("posts", sources.posts, viewer, wanted),
            corpora=await self._listed("corpora", sources.corpora, viewer, wanted),
            documents=await self._listed("documents", sources.documents, viewer, wanted),
        )

    async def _listed(
        self, view: str, source: CachedAnswer[Gathered], viewer: Viewer, wanted: frozenset[str]
    ) -> Gathered:
        """Return the rows of a view that the caller may see, or the reason that there are none.

        Permission to read the data is permission to call the capability that lists it.
        """
        name, corpus_column = _LISTED[view]
        if view not in wanted:
            return Gathered(())
        if not viewer.may_call(parse_capability(name)):
            return Gathered((), (f"{view}: the token does not cover {name}",))
        found = await source.get()
        if not corpus_column:
            return found
        return visible_only(viewer, await self._sources.snapshot.get(), found, corpus_column)


def visible_only(viewer: Viewer, snapshot: Snapshot, found: Gathered, column: str) -> Gathered:
    """Return the rows of corpora that `viewer` may search, and the lines about those that are missing.

    Of this node these are the corpora that it sees offered; a token restricts them further. Why something of
    this node is missing is told to the node alone: the reason may name private corpora.
    """
    query, own = parse_capability("rag.query@1.0"), viewer.own
    # A name may stand for the owner's private corpus and for another person's shared one: the rows are those
    # that this node reads by the name, which are the owner's then.
    private = {corpus_of(view) for view in snapshot.offers if view.node == own and trust_of(view) == HOME}
    offered = {
        corpus_of(view)
        for view in snapshot.visible(viewer)
        if view.node == own and (trust_of(view) == HOME or corpus_of(view) not in private)
    }
    rows = tuple(
        (node, row)
        for node, row in found.rows
        if (viewer.is_self or node != viewer.own or row[column] in offered)
        and viewer.may_call(query, {"corpus": row[column]})
    )
    missing = [*found.missing]
    for corpus, line in found.at_home:
        if viewer.is_self:
            missing.append(line)
        elif corpus is None or corpus in offered:
            missing.append(f"{line.partition(' ')[0].rstrip(':')} of {viewer.own}: not answered")
    return Gathered(rows, tuple(missing))


def _checked(wanted: QueryInput) -> Checked:
    # Imported late: the parser takes half the memory of the process, and many nodes get no query at all.
    from hearthnet_mesh.query import validator

    return validator.validate(wanted.sql, wanted.bindings)


def _run(wanted: QueryInput, checked: Checked, world: views.World) -> sandbox.QueryResult:
    tables = {view: views.rows(view, world) for view in sorted(checked.views)}
    return sandbox.execute(wanted.sql, checked.values, tables, wanted.limit)
